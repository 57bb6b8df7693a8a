//! An authenticator app, and people who use one.

use tollgate::base::{
    timestamp,
    totp::{STEP_SECONDS, TotpSecret},
};

use super::portal::{Browser, PASSWORD, Seen};

/// The app of a person, who has ten recovery codes.
pub struct App {
    secret: TotpSecret,
    pub recovery: Vec<String>,
    used: i64,
}

impl App {
    /// Sets up two-factor authentication in the settings of a browser that is signed in.
    pub async fn set_up(browser: &Browser) -> Self {
        let mut app = Self::begun(browser).await;
        let code = app.code();
        let on = browser
            .post("/portal/settings/two-factor/confirm", &[("code", &code)])
            .await;
        on.assert_page();
        let codes = on.between("id=\"recovery-codes\">", "<");
        app.recovery = codes.lines().map(str::to_owned).collect();
        assert_eq!(app.recovery.len(), 10, "{codes}");
        app
    }

    /// Begins to set it up; the app has read the secret.
    pub async fn begun(browser: &Browser) -> Self {
        past_the_end_of_a_step().await;
        let page = "/portal/settings/two-factor";
        browser.get(page).await.assert_page();
        let begun = [("present", PASSWORD)];
        browser
            .post("/portal/settings/two-factor/begin", &begun)
            .await
            .assert_sent_to(page);
        let shown = browser.get(page).await;
        assert!(shown.assert_page().contains("<svg class=\"qr\""));
        let secret = shown.between("id=\"factor-secret\">", "<");
        Self {
            secret: TotpSecret::parse(secret).unwrap(),
            recovery: Vec::new(),
            // The code of the previous step is accepted too, so a test has three codes without waiting.
            used: present() - 2,
        }
    }

    /// A code that was not used before.
    pub fn code(&mut self) -> String {
        self.used = (self.used + 1).max(present() - 1);
        assert!(self.used <= present() + 1, "too many codes in one step");
        self.secret.code(self.used)
    }

    /// The code that was used last.
    pub fn last(&self) -> String {
        self.secret.code(self.used)
    }

    /// A code that is wrong now.
    pub fn wrong(&self) -> String {
        self.secret.code(present() + 100)
    }
}

/// Waits, if a step is about to end: the code of the one before it would be refused a moment later.
async fn past_the_end_of_a_step() {
    while timestamp::now() % STEP_SECONDS >= STEP_SECONDS - 5 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

fn present() -> i64 {
    timestamp::now() / STEP_SECONDS
}

/// Submits the page for the code.
pub async fn enter(browser: &Browser, code: &str) -> Seen {
    browser.get("/portal/sign-in/code").await.assert_page();
    browser
        .post("/portal/sign-in/code", &[("code", code)])
        .await
}

/// A new browser that has sent the right password and is asked for the code.
pub async fn asked(browser: &Browser, email: &str) {
    let sent = browser.sign_in(email, PASSWORD).await;
    sent.assert_sent_to("/portal/sign-in/code");
    assert_eq!(browser.get("/portal").await.status, 303, "not signed in");
}
