//! Compares the script with the window in memory, operation by operation.

use super::{
    super::super::memory::window::{Kind, Window},
    *,
};
use crate::base::rate::WINDOW_MS;

/// A pseudo-random generator with a fixed seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % end
    }
}

#[derive(Clone, Debug)]
struct Entry {
    call: u64,
    step: u32,
    at_ms: u64,
    /// `None` for a tombstone.
    tokens: Option<u64>,
}

/// The expected contents of the window.
#[derive(Default)]
struct Model {
    entries: Vec<Entry>,
}

impl Model {
    fn expire(&mut self, now_ms: u64) {
        for entry in &mut self.entries {
            entry.at_ms = entry.at_ms.min(now_ms);
        }
        self.entries
            .retain(|entry| now_ms - entry.at_ms < WINDOW_MS);
        self.entries.sort_by_key(|entry| entry.at_ms);
    }

    fn find(&mut self, call: u64, step: u32) -> Option<&mut Entry> {
        let mut entries = self.entries.iter_mut();
        entries.find(|entry| (entry.call, entry.step) == (call, step))
    }

    fn admit(&mut self, now_ms: u64, call: u64, step: u32, need: u64, to: Ceilings) -> Reply {
        self.expire(now_ms);
        if let Some(entry) = self.find(call, step) {
            let at_ms = entry.at_ms;
            let admitted = Reply::Admitted { at_ms };
            return entry.tokens.map_or(Reply::Buried, |_| admitted);
        }
        let kind = |step| match step {
            0 => Kind::Request,
            _ => Kind::Step,
        };
        let mut window = Window::default();
        for (number, entry) in (0..).zip(&self.entries) {
            if let Some(tokens) = entry.tokens {
                window.restore(kind(entry.step), entry.at_ms, number, tokens);
            }
        }
        if let Err(refusal) = window.admit(kind(step), now_ms, u64::MAX, need, to) {
            return Reply::Refused(refusal);
        }
        self.entries.push(Entry {
            call,
            step,
            at_ms: now_ms,
            tokens: Some(need),
        });
        Reply::Admitted { at_ms: now_ms }
    }

    fn settle(&mut self, call: u64, step: u32, used: u64) -> bool {
        let entry = self.find(call, step);
        let tokens = entry.and_then(|entry| entry.tokens.as_mut());
        tokens.map(|tokens| *tokens = used).is_some()
    }

    fn cancel(&mut self, call: u64, step: u32) {
        let is_it =
            |entry: &Entry| (entry.call, entry.step) == (call, step) && entry.tokens.is_some();
        self.entries.retain(|entry| !is_it(entry));
    }

    fn bury(&mut self, now_ms: u64, call: u64, step: u32) {
        self.expire(now_ms);
        if let Some(entry) = self.find(call, step) {
            entry.tokens = None;
        } else {
            self.entries.push(Entry {
                call,
                step,
                at_ms: now_ms,
                tokens: None,
            });
        }
    }
}

/// A connection to a server whose partitions have their marks.
async fn marked(server: &Server) -> Link {
    let address = Address::parse(&server.url()).unwrap();
    drop(limiter(&server.url(), DEADLINE, &Ledger::default()).await);
    Link::to(&address).await.unwrap()
}

/// Random operations, each with the reply that the model expects.
struct Operations {
    random: Random,
    /// Factor of the ceilings: some windows are large.
    scale: u32,
    window: WindowKeys,
    model: Model,
    now_ms: u64,
    /// How often the clock was set back.
    went_back: u32,
    /// Each call with its latest step and the time of its admission.
    calls: Vec<(u64, u32, u64)>,
}

impl Operations {
    fn seeded(seed: u64) -> Self {
        Self {
            random: Random(seed),
            scale: if seed % 4 == 3 { 60 } else { 1 },
            window: WindowKeys::of("a", &format!("m{seed}")),
            model: Model::default(),
            now_ms: 1_800_000_000_000,
            went_back: 0,
            calls: Vec::new(),
        }
    }

    fn pass_time(&mut self) {
        let scale = u64::from(self.scale);
        self.now_ms += match self.random.below(10) {
            0 => self.random.below(30_000 / scale),
            1..4 => 0,
            _ => self.random.below(3_000 / scale),
        };
        if self.random.below(40) == 0 {
            self.now_ms -= self.random.below(50_000);
            self.went_back += 1;
        }
    }

    fn ceilings(&mut self) -> Ceilings {
        let requests = [5, 8, 8, 8, 3, 0][usize::try_from(self.random.below(6)).unwrap()];
        let tokens = 100 + 50 * u32::try_from(self.random.below(3)).unwrap();
        Ceilings {
            requests: requests * self.scale,
            tokens: tokens * self.scale,
        }
    }

    fn need(&mut self) -> u64 {
        let most = match self.random.below(20) {
            0 => 300,
            1 => 150 * u64::from(self.scale),
            _ => 50,
        };
        self.random.below(most)
    }

    /// An admitted call, preferably a recent one, which is still in the window.
    fn some_call(&mut self) -> Option<usize> {
        let count = self.calls.len();
        let any = usize::try_from(self.random.below(count.max(1) as u64)).unwrap();
        let at = any.max(count.saturating_sub(12 * self.scale as usize));
        (at < count).then_some(at)
    }

    fn next(&mut self, new_call: u64) -> (Run, Reply) {
        self.pass_time();
        let (ceilings, need, used) = (self.ceilings(), self.need(), self.random.below(80));
        let (choice, known) = (self.random.below(10), self.some_call());
        let Some(known) = known.filter(|_| choice >= 5) else {
            return self.admit(new_call, 0, need, ceilings);
        };
        let (call, step, _) = self.calls[known];
        let name = entry(call, step);
        let run = match choice {
            5 => {
                self.model.settle(call, step, used);
                Run::settle(&self.window, &name, used)
            }
            6 => {
                self.model.cancel(call, step);
                Run::cancel(&self.window, &name)
            }
            7 => {
                let step = step + u32::try_from(self.random.below(2)).unwrap();
                self.model.bury(self.now_ms, call, step);
                Run::bury(&self.window, &entry(call, step))
            }
            8 => return self.renew(known, used, need, ceilings),
            _ => return self.admit(call, step, need, ceilings),
        };
        (run, Reply::Done)
    }

    fn admit(&mut self, call: u64, step: u32, need: u64, ceilings: Ceilings) -> (Run, Reply) {
        let is_new = self.calls.iter().all(|known| known.0 != call);
        let reply = self.model.admit(self.now_ms, call, step, need, ceilings);
        if let (true, Reply::Admitted { at_ms }) = (is_new, &reply) {
            self.calls.push((call, step, *at_ms));
        }
        let run = Run::admit(&self.window, &entry(call, step), need, ceilings);
        (run, reply)
    }

    fn renew(&mut self, known: usize, used: u64, need: u64, to: Ceilings) -> (Run, Reply) {
        let (call, step, at_ms) = self.calls[known];
        let (before, next) = (entry(call, step), entry(call, step + 1));
        let run = Run::renew(&self.window, (&before, at_ms, used), (&next, need), to);
        self.model.expire(self.now_ms);
        let is_known = self.model.find(call, step + 1).is_some();
        let is_there = is_known || self.model.settle(call, step, used);
        if !is_there && self.now_ms.saturating_sub(at_ms) < WINDOW_MS {
            return (run, Reply::Lost);
        }
        let reply = self.model.admit(self.now_ms, call, step + 1, need, to);
        if let Reply::Admitted { at_ms } = reply {
            self.calls[known] = (call, step + 1, at_ms);
        }
        (run, reply)
    }
}

#[tokio::test]
async fn the_script_replies_as_the_window_in_memory_does() {
    let server = Server::start(&[]).await;
    let link = marked(&server).await;
    let (mut refused, mut lost, mut went_back) = (0, 0, 0);
    for seed in 0..24 {
        let mut operations = Operations::seeded(seed);
        for call in 0..if operations.scale > 1 { 1_200 } else { 250 } {
            let (run, expected) = operations.next(call);
            refused += u32::from(matches!(expected, Reply::Refused(_)));
            lost += u32::from(expected == Reply::Lost);
            let reply = run.at(operations.now_ms).send(&link).await.unwrap();
            assert_eq!(reply, expected, "seed {seed}, call {call}");
        }
        went_back += operations.went_back;
    }
    assert!(
        refused > 500 && lost > 50 && went_back > 50,
        "{refused} {lost} {went_back}"
    );
}

#[tokio::test]
async fn the_keys_of_a_window_expire() {
    let server = Server::start(&[]).await;
    let link = marked(&server).await;
    let window = WindowKeys::of("a", "m");
    for call in 0..3 {
        let run = Run::admit(&window, &entry(call, 0), 1, CEILINGS);
        run.send(&link).await.unwrap();
    }
    let keys: Vec<String> = server.run("KEYS *:a:m").await;
    assert_eq!(keys.len(), 2);
    for key in keys {
        let left: i64 = server.run(&format!("PTTL {key}")).await;
        assert!((1..=61_000).contains(&left), "{key}: {left}");
    }
    let refused = Run::admit(&WindowKeys::of("b", "m"), "1.0", 5_000, CEILINGS);
    refused.send(&link).await.unwrap();
    let keys: Vec<String> = server.run("KEYS *:b:m").await;
    assert_eq!(keys, [] as [String; 0], "a refused request leaves no keys");
}

#[tokio::test]
async fn many_entries_leave_the_window_at_once() {
    let server = Server::start(&[]).await;
    let link = marked(&server).await;
    let window = WindowKeys::of("a", "m");
    let many = Ceilings {
        requests: 2_000,
        tokens: 4_000,
    };
    for call in 0..1_800 {
        let run = Run::admit(&window, &entry(call, 0), 2, many).at(1_000 + call);
        run.send(&link).await.unwrap();
    }
    let admit = |need, now_ms| Run::admit(&window, "9999.0", need, many).at(now_ms);
    let reply = admit(4_000, 3_000).send(&link).await.unwrap();
    let Reply::Refused(refusal) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(refusal.tokens_left, 400);
    assert_eq!(refusal.wait_ms, Some(1_000 + 1_799 + 60_000 - 3_000));
    let reply = admit(4_000, 62_799).send(&link).await.unwrap();
    assert_eq!(reply, Reply::Admitted { at_ms: 62_799 });
}
