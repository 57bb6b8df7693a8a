//! A signed-in browser that loads pages.

use reqwest::{Client, Response, header, redirect::Policy};

pub struct Browser {
    client: Client,
    origin: String,
    cookie: String,
}

impl Browser {
    pub async fn signed_in(origin: &str, email: &str, password: &str) -> Self {
        let client = Client::builder().no_proxy().redirect(Policy::none());
        let client = client.build().unwrap();
        let url = format!("{origin}/portal/sign-in");
        let page = client.get(&url).send().await.unwrap();
        let visit = cookies(&page);
        let page = page.text().await.unwrap();
        let token = between(&page, "name=\"token\" value=\"", "\"");
        let form = format!(
            "token={token}&email={}&password={}",
            email.replace('@', "%40"),
            password.replace(' ', "+")
        );
        let answer = client
            .post(&url)
            .header(header::COOKIE, visit)
            .header(header::ORIGIN, origin)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 303, "signing in");
        Self {
            client,
            origin: origin.to_owned(),
            cookie: cookies(&answer),
        }
    }

    /// The whole page.
    pub async fn get(&self, page: &str) -> String {
        let url = format!("{}{page}", self.origin);
        let request = self.client.get(url).header(header::COOKIE, &self.cookie);
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200, "{page}");
        answer.text().await.unwrap()
    }
}

fn cookies(answer: &Response) -> String {
    let set = answer.headers().get_all(header::SET_COOKIE).iter();
    let pairs = set.filter_map(|cookie| cookie.to_str().ok()?.split(';').next());
    pairs.collect::<Vec<_>>().join("; ")
}

/// The text between two texts on a page.
pub fn between(page: &str, before: &str, after: &str) -> String {
    let rest = page.split_once(before).map(|(_, rest)| rest);
    let found = rest.and_then(|rest| rest.split_once(after));
    let found = found.unwrap_or_else(|| panic!("no {before}…{after} in {page}"));
    found.0.to_owned()
}
