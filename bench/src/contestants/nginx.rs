//! nginx as a bare proxy: it keeps its connections, relays bytes as they come, and inspects nothing.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use super::{Contestant, size_on_disk};
use crate::{
    Done,
    chat::Api,
    load::Target,
    process::{Process, free_port},
    upstream::Upstream,
};

const PROGRAM: &str = "/usr/sbin/nginx";

pub struct Nginx {
    folder: PathBuf,
    target: Target,
    process: Option<Process>,
}

impl Nginx {
    pub fn start(upstream: &Upstream, folder: &Path) -> Done<Self> {
        Self::start_with(upstream, folder, "", "")
    }

    /// With a bound of the requests at a time; further ones get 503.
    pub fn start_limited(upstream: &Upstream, folder: &Path, most: usize) -> Done<Self> {
        let zone = "limit_conn_zone $server_port zone=all:1m;";
        let limit =
            format!("limit_conn all {most}; limit_conn_status 503; limit_conn_log_level info;");
        Self::start_with(upstream, folder, zone, &limit)
    }

    fn start_with(upstream: &Upstream, folder: &Path, zone: &str, limit: &str) -> Done<Self> {
        let folder = folder.join("nginx");
        fs::create_dir(&folder)?;
        let port = free_port()?;
        fs::write(
            folder.join("nginx.conf"),
            configuration(port, upstream.port, zone, limit),
        )?;
        let target = Target {
            port,
            api: Api::Chat,
            path: "/v1/chat/completions".into(),
            model: "model".into(),
            callers: vec!["authorization: Bearer sk-bench\r\n".into()],
        };
        let mut nginx = Self {
            folder,
            target,
            process: None,
        };
        nginx.restart()?;
        Ok(nginx)
    }
}

impl Contestant for Nginx {
    fn name(&self) -> &'static str {
        "nginx"
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    fn restart(&mut self) -> Done<Duration> {
        self.process = None;
        let mut program = Command::new(PROGRAM);
        program.arg("-p").arg(&self.folder);
        program.arg("-c").arg(self.folder.join("nginx.conf"));
        program.arg("-e").arg(self.folder.join("errors.log"));
        let started = Instant::now();
        let mut process = Process::start(&program, &self.folder.join("log"))?;
        process.wait_until_ready(self.target.port, "/ready")?;
        self.process = Some(process);
        Ok(started.elapsed())
    }

    fn size(&self) -> u64 {
        size_on_disk(Path::new(PROGRAM))
    }

    fn version(&self) -> String {
        let said = Command::new(PROGRAM).arg("-v").output();
        let said = said.map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
        said.unwrap_or_default()
            .trim()
            .replace("nginx version: ", "")
    }
}

/// As many processes as the gateway has serving threads, and all connections kept open.
fn configuration(port: u16, upstream: u16, zone: &str, limit: &str) -> String {
    format!(
        r#"
daemon off;
user root;
worker_processes 2;
pid nginx.pid;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  keepalive_requests 1000000000;
  {zone}
  upstream model {{
    server 127.0.0.1:{upstream};
    keepalive 1024;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location = /ready {{ return 200; }}
    location / {{
      {limit}
      proxy_pass http://model;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"#
    )
}
