//! A private PostgreSQL server for a test process, which ends with that process even if it is killed.
//!
//! It uses only the standard library and `tempfile`, so that unit tests, `tests/it` and benchmarks can include it.

#![allow(
    dead_code,
    reason = "each test binary that includes this file uses only part of it"
)]

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread::sleep,
    time::{Duration, Instant},
};

/// Shell script that starts the server, prints its process ID, and ends it when the pipe from the test process closes.
/// The pipe closes also if the test process is killed.
const KEEPER: &str = r#"
"$@" >&2 & server=$!
echo $server
cat > /dev/null
kill -CONT $server; kill -QUIT $server
wait $server
"#;

/// Shell script that removes the folder when the pipe closes. It retries, because a server that is ending may still
/// write.
const SWEEPER: &str = r#"
cat > /dev/null
until rm -rf "$1"; do sleep 0.1; done
"#;

/// How long a server may take to start or end; long, because the machine may be compiling at the same time.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A server with its data folder; dropping it ends the server and removes the folder.
pub struct PostgresServer {
    folder: PathBuf,
    sweeper: Child,
    port: u16,
    settings: Vec<String>,
    environment: Vec<String>,
    running: Mutex<Option<Running>>,
    starts: AtomicU32,
    databases: AtomicU32,
    /// Name of the database that [`Self::copy_of`] copies.
    template: OnceLock<String>,
}

struct Running {
    keeper: Child,
    pid: u32,
}

impl PostgresServer {
    /// The server that all tests of this process share; each test uses a database of its own.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<PostgresServer> = OnceLock::new();
        SHARED.get_or_init(Self::own)
    }

    /// A server for one test, which may kill it. It is fast and does not flush to the disk.
    pub fn own() -> Self {
        Self::own_with(&[])
    }

    /// Like [`Self::own`], with settings of `postgresql.conf`, e.g. `fsync=on`.
    pub fn own_with(settings: &[&str]) -> Self {
        Self::own_in(settings, |_| Vec::new())
    }

    /// Like [`Self::own_with`], with environment variables, e.g. `A=b`, which may depend on the server's folder.
    pub fn own_in(settings: &[&str], environment: impl Fn(&Path) -> Vec<String>) -> Self {
        let folder = tempfile::Builder::new().prefix("tollgate-pg-").tempdir();
        let folder = folder.unwrap().keep();
        let mut sweeper = shell(SWEEPER);
        let sweeper = sweeper.arg(&folder).spawn().expect("a shell");
        give_to_server(&folder);
        let data = folder.join("data");
        let created = as_server("initdb")
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8"])
            .args(["--locale=C", "--no-sync", "-D"])
            .arg(&data)
            .output();
        succeeded("initdb", created);
        let settings = settings.iter().map(|setting| (*setting).to_owned());
        let mut server = Self {
            environment: environment(&folder),
            folder,
            sweeper,
            port: 0,
            settings: settings.collect(),
            running: Mutex::default(),
            starts: AtomicU32::new(0),
            databases: AtomicU32::new(0),
            template: OnceLock::new(),
        };
        // Another process may take the free port before the server listens on it.
        for _ in 0..10 {
            server.port = free_port();
            if server.try_start() {
                return server;
            }
        }
        panic!("PostgreSQL found no free port");
    }

    /// Creates an empty database and returns its URL.
    pub fn database(&self) -> String {
        self.url(&self.copied_from("template0"))
    }

    /// Creates a database with the tables that `create_tables` has created in another one, once for this server, and
    /// returns its URL. A copy takes half the time that creating the tables takes.
    pub fn copy_of(&self, create_tables: impl FnOnce(&str)) -> String {
        let template = self.template.get_or_init(|| {
            let name = self.copied_from("template0");
            create_tables(&self.url(&name));
            name
        });
        self.url(&self.copied_from(template))
    }

    fn copied_from(&self, template: &str) -> String {
        let name = format!("t{}", self.databases.fetch_add(1, Relaxed));
        let copy = format!("CREATE DATABASE {name} TEMPLATE {template}");
        self.psql("postgres", &copy);
        name
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder of the server's files; its data are in `data`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs a script in a database and returns the rows of its results, formatted as by `psql -At`.
    ///
    /// It starts no process, because a child process that is just starting holds the files of this process open for a
    /// moment, including their locks, which can disturb other tests.
    pub fn psql(&self, database: &str, script: &str) -> String {
        let rows = Session::open(self.port, database).and_then(|mut session| session.run(script));
        rows.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Writes a file to the server's folder that only the server can read.
    pub fn write_file(&self, name: &str, contents: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, contents).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&path, mode).unwrap();
        give_to_server(&path);
        path
    }

    /// Kills all processes of the server at once, as a crash of the machine would.
    pub fn kill(&self) {
        let running = self.running.lock().unwrap().take();
        let mut running = running.expect("the server is running");
        // A stopped server starts no new processes meanwhile.
        signal("-STOP", &[running.pid]);
        let family = running.family();
        signal("-KILL", &family);
        drop(running.keeper.stdin.take());
        running.keeper.wait().unwrap();
        let started = Instant::now();
        while family.iter().any(|pid| is_alive(*pid)) && started.elapsed() < TIMEOUT {
            sleep(Duration::from_millis(5));
        }
    }

    /// Starts a killed server again, with its port and its data.
    pub fn start(&self) {
        let started = Instant::now();
        while !self.try_start() {
            assert!(started.elapsed() < TIMEOUT, "{}", self.log());
            sleep(Duration::from_millis(50));
        }
    }

    /// Stops all processes of the server, so that its connections hang.
    pub fn pause(&self) {
        self.signal_all("-STOP");
    }

    pub fn resume(&self) {
        self.signal_all("-CONT");
    }

    /// The server's log since its last start.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn signal_all(&self, name: &str) {
        let running = self.running.lock().unwrap();
        signal(
            name,
            &running.as_ref().expect("the server is running").family(),
        );
    }

    fn log_file(&self) -> PathBuf {
        let name = format!("log.{}", self.starts.load(Relaxed));
        self.folder.join(name)
    }

    fn try_start(&self) -> bool {
        self.starts.fetch_add(1, Relaxed);
        let log = fs::File::create(self.log_file()).unwrap();
        let server = self.command();
        let mut keeper = shell(KEEPER)
            .arg(server.get_program())
            .args(server.get_args())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("a shell");
        let mut pid = String::new();
        let read = BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut pid);
        read.unwrap();
        let pid = pid.trim().parse().unwrap();
        let running = Running { keeper, pid };
        let is_up = self.wait_until_ready(pid);
        *self.running.lock().unwrap() = Some(running);
        if !is_up {
            self.kill();
        }
        is_up
    }

    fn command(&self) -> Command {
        let mut command = as_server_in("postgres", &self.environment);
        let folder = self.folder.display();
        command.arg("-D").arg(self.folder.join("data"));
        for setting in [
            format!("port={}", self.port),
            format!("unix_socket_directories={folder}"),
            "listen_addresses=127.0.0.1".into(),
            "max_connections=1000".into(),
            "shared_buffers=128MB".into(),
            "fsync=off".into(),
            // With hundreds of small databases, the server would do little else.
            "autovacuum=off".into(),
            "log_min_messages=warning".into(),
        ] {
            command.arg("-c").arg(setting);
        }
        for setting in &self.settings {
            command.arg("-c").arg(setting);
        }
        command
    }

    /// Waits until the server is ready. Returns `false` if its port is taken, or if the shared memory or the lock file
    /// of a killed server is not released yet.
    fn wait_until_ready(&self, pid: u32) -> bool {
        let started = Instant::now();
        let status = self.folder.join("data/postmaster.pid");
        while started.elapsed() < TIMEOUT {
            let text = fs::read_to_string(&status).unwrap_or_default();
            let mut lines = text.lines();
            let is_this_process = lines.next() == Some(&pid.to_string());
            if is_this_process && lines.any(|line| line.trim() == "ready") {
                return true;
            }
            let log = self.log();
            for passing in ["could not create any TCP/IP", "shared memory", "lock file"] {
                if log.contains("FATAL") && log.contains(passing) {
                    return false;
                }
            }
            sleep(Duration::from_millis(10));
        }
        panic!("PostgreSQL did not start:\n{}", self.log());
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.lock().unwrap().take() {
            drop(running.keeper.stdin.take());
            let _ = running.keeper.wait();
        }
        drop(self.sweeper.stdin.take());
        let _ = self.sweeper.wait();
    }
}

/// A connection with the part of the PostgreSQL protocol that scripts need.
struct Session(TcpStream);

impl Session {
    fn open(port: u16, database: &str) -> io::Result<Self> {
        let mut session = Self(TcpStream::connect(("127.0.0.1", port))?);
        // Version 3.0 of the protocol.
        let mut startup = 196_608_u32.to_be_bytes().to_vec();
        startup.extend(format!("user\0postgres\0database\0{database}\0\0").into_bytes());
        session.send(&startup)?;
        session.until_ready()?;
        Ok(session)
    }

    fn run(&mut self, script: &str) -> io::Result<String> {
        self.0.write_all(b"Q")?;
        self.send(format!("{script}\0").as_bytes())?;
        self.until_ready()
    }

    fn send(&mut self, body: &[u8]) -> io::Result<()> {
        let length = u32::try_from(body.len() + 4).unwrap();
        self.0.write_all(&length.to_be_bytes())?;
        self.0.write_all(body)
    }

    /// Reads messages until the server is ready for the next query, and returns the rows.
    fn until_ready(&mut self) -> io::Result<String> {
        let (mut rows, mut failure) = (Vec::new(), None);
        loop {
            let (kind, body) = self.receive()?;
            match kind {
                b'D' => rows.push(fields(&body).join("|")),
                b'E' => {
                    failure = Some(String::from_utf8_lossy(&body).replace('\0', " "));
                    // A fatal error, such as a refused login, is the last message.
                    if body.starts_with(b"SFATAL") {
                        break;
                    }
                }
                b'Z' => break,
                _ => {}
            }
        }
        failure.map_or(Ok(rows.join("\n")), |error| Err(io::Error::other(error)))
    }

    fn receive(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.0.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let mut body = vec![0; usize::try_from(length).unwrap() - 4];
        self.0.read_exact(&mut body)?;
        Ok((head[0], body))
    }
}

/// The texts of a row's fields; NULL is an empty text.
fn fields(row: &[u8]) -> Vec<String> {
    let mut rest = &row[2..];
    let mut fields = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
        let (field, after) = after.split_at(length);
        fields.push(String::from_utf8_lossy(field).into_owned());
        rest = after;
    }
    fields
}

impl Running {
    /// The process IDs of the server and its child processes.
    fn family(&self) -> Vec<u32> {
        let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let children = pids.filter(|pid| parent(*pid) == Some(self.pid));
        std::iter::once(self.pid).chain(children).collect()
    }
}

/// The parent of a process: the fourth field of `stat`, counted from the last parenthesis, because the process name
/// before it may contain anything.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields = stat.rsplit_once(')')?.1;
    fields.split_whitespace().nth(1)?.parse().ok()
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').map(|(_, fields)| fields.trim_start());
    state.is_some_and(|fields| !fields.starts_with('Z'))
}

fn signal(name: &str, pids: &[u32]) {
    let pids = pids.iter().map(u32::to_string);
    let mut kill = Command::new("kill");
    kill.arg(name).args(pids).stderr(Stdio::null());
    kill.status().expect("`kill`");
}

/// A shell for a script that waits until its input ends.
fn shell(script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", script, "keeper-of-postgres"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C at the keyboard must reach only the tests; when they end, the pipe closes.
        .process_group(0);
    shell
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn succeeded(what: &str, done: io::Result<Output>) -> Output {
    let output = done.unwrap_or_else(|error| {
        panic!("{what}: {error}; these tests need PostgreSQL: `apt-get install postgresql`")
    });
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {stderr}");
    output
}

/// The path of a PostgreSQL program. Debian installs the server's programs outside of `PATH`, in a folder for each
/// version.
fn binary(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let binaries = versions
        .filter_map(|version| Some(version.ok()?.path().join("bin").join(name)))
        .filter(|binary| binary.exists());
    binaries.max().unwrap_or_else(|| name.into())
}

/// A command that runs a PostgreSQL program. The server refuses to run as root, so for root it runs as user `postgres`.
pub fn as_server(name: &str) -> Command {
    as_server_in(name, &[])
}

/// Like [`as_server`], with environment variables for the program alone.
fn as_server_in(name: &str, environment: &[String]) -> Command {
    let mut command = Command::new("env");
    if is_root() {
        command = Command::new("setpriv");
        command
            .args(["--reuid", "postgres", "--regid", "postgres"])
            .args(["--clear-groups", "--", "env"]);
    }
    command.args(environment).arg(binary(name));
    command
}

/// Makes the server's user the owner of a file.
fn give_to_server(path: &Path) {
    if is_root() {
        let mut chown = Command::new("chown");
        succeeded("chown", chown.arg("postgres:postgres").arg(path).output());
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}
