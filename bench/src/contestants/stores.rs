//! A PostgreSQL and a Redis for the benchmark, started as in the tests.

#[allow(clippy::pedantic, reason = "it is the tests' own")]
#[path = "../../../src/db/testing/postgres_server.rs"]
mod postgres_server;
#[allow(dead_code, clippy::pedantic, reason = "tests use more of it")]
#[path = "../../../tests/it/support/redis_server.rs"]
mod redis_server;

use std::fs;

use postgres_server::PostgresServer;
use redis_server::RedisServer;

use crate::Done;

pub struct Stores {
    postgres: PostgresServer,
    redis: RedisServer,
    pub database: String,
}

impl Stores {
    pub fn start() -> Self {
        let postgres = PostgresServer::own_with(&["fsync=on", "shared_buffers=256MB"]);
        let database = postgres.database();
        let redis = RedisServer::own();
        Self {
            postgres,
            redis,
            database,
        }
    }

    pub fn redis_url(&self) -> String {
        self.redis.url()
    }

    pub fn pids(&self) -> Done<Vec<u32>> {
        let file = self.postgres.folder().join("data/postmaster.pid");
        let postgres = fs::read_to_string(file)?;
        let postgres = postgres.lines().next().ok_or("PostgreSQL has no process")?;
        let info = self.redis.command(&["INFO", "server"])?;
        let redis = info
            .lines()
            .find_map(|line| line.strip_prefix("process_id:"));
        let redis = redis.ok_or("Redis has no process")?;
        Ok(vec![postgres.trim().parse()?, redis.trim().parse()?])
    }
}
