//! A fake mail server that stores what it receives, or refuses everything.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

/// Longer than any step takes.
const TIMEOUT: Duration = Duration::from_mins(1);
const USER: &str = "postmaster";
pub const PASSWORD: &str = "mail-password-canary";

#[derive(Clone)]
pub struct FakeSmtp {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    mails: Mutex<VecDeque<Received>>,
    refuses: AtomicBool,
    came: Notify,
}

#[derive(Debug)]
pub struct Received {
    pub to: String,
    /// Head and body, with wrapped lines joined.
    pub text: String,
}

impl Received {
    /// The path of the one-time link in the email.
    #[track_caller]
    pub fn link(&self) -> String {
        let secret = self.text.find("?link=");
        let secret = secret.unwrap_or_else(|| panic!("no link in {}", self.text));
        let at = self.text[..secret].rfind("/portal/").unwrap();
        let link = self.text[at..].split_whitespace().next().unwrap();
        link.to_owned()
    }
}

impl FakeSmtp {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            shared: Arc::default(),
        };
        let shared = server.shared.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, shared.clone()));
            }
        });
        server
    }

    /// The configuration section for this server.
    pub fn section(&self) -> String {
        let address = self.address;
        format!(
            "[mail]\nurl = \"smtp://{USER}:{PASSWORD}@{address}\"\nfrom = \"Gate <gate@example.org>\"\n"
        )
    }

    pub fn refuse(&self, refuses: bool) {
        self.shared.refuses.store(refuses, Relaxed);
    }

    /// Waits for the next email.
    pub async fn next_mail(&self) -> Received {
        let next = async {
            loop {
                let came = self.shared.came.notified();
                if let Some(mail) = self.shared.mails.lock().unwrap().pop_front() {
                    return mail;
                }
                came.await;
            }
        };
        let next = tokio::time::timeout(TIMEOUT, next).await;
        next.expect("an email arrives")
    }

    pub fn is_empty(&self) -> bool {
        self.shared.mails.lock().unwrap().is_empty()
    }
}

async fn serve(client: TcpStream, shared: Arc<Shared>) -> std::io::Result<()> {
    let (read, mut write) = client.into_split();
    let mut lines = BufReader::new(read).lines();
    let login = BASE64_STANDARD.encode(format!("\0{USER}\0{PASSWORD}"));
    let mut to = String::new();
    write.write_all(b"220 fake\r\n").await?;
    while let Some(line) = lines.next_line().await? {
        let answer = match line.split([' ', ':']).next().unwrap_or_default() {
            "EHLO" => "250-fake\r\n250-8BITMIME\r\n250 AUTH PLAIN",
            "AUTH" if line == format!("AUTH PLAIN {login}") => "235 welcome",
            "AUTH" => "535 who are you?",
            "RCPT" if shared.refuses.load(Relaxed) => "550 nobody here wants that",
            "RCPT" => {
                line.trim_start_matches("RCPT TO:").clone_into(&mut to);
                "250 fine"
            }
            "DATA" => {
                write.write_all(b"354 go on\r\n").await?;
                let mut text = String::new();
                while let Some(line) = lines.next_line().await?.filter(|line| line != ".") {
                    text = text + &line + "\n";
                }
                let to = to.trim_matches(['<', '>']).to_owned();
                // Decodes as much of quoted-printable as the gateway's emails use.
                let text = text.replace("=\n", "").replace("=3D", "=");
                let mail = Received { to, text };
                shared.mails.lock().unwrap().push_back(mail);
                shared.came.notify_one();
                "250 taken"
            }
            "QUIT" => "221 bye",
            _ => "250 fine",
        };
        write.write_all(format!("{answer}\r\n").as_bytes()).await?;
    }
    Ok(())
}
