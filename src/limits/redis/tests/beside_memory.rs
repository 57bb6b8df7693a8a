//! The script beside the window that is kept in memory, step by step.

use super::{
    super::super::memory::window::{Kind, Window},
    *,
};
use crate::base::rate::WINDOW_MS;

/// Numbers that are the same each time.
struct Dice(u64);

impl Dice {
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
    /// `None` once it is buried.
    tokens: Option<u64>,
}

/// All that should be in the window.
#[derive(Default)]
struct Model {
    entries: Vec<Entry>,
}

impl Model {
    fn forget(&mut self, now_ms: u64) {
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

    fn admit(&mut self, now_ms: u64, call: u64, step: u32, need: u64, to: Ceilings) -> Answer {
        self.forget(now_ms);
        if let Some(entry) = self.find(call, step) {
            let at_ms = entry.at_ms;
            let admitted = Answer::Admitted { at_ms };
            return entry.tokens.map_or(Answer::Buried, |_| admitted);
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
            return Answer::Refused(refusal);
        }
        self.entries.push(Entry {
            call,
            step,
            at_ms: now_ms,
            tokens: Some(need),
        });
        Answer::Admitted { at_ms: now_ms }
    }

    fn settle(&mut self, call: u64, step: u32, used: u64) -> bool {
        let entry = self.find(call, step);
        let tokens = entry.and_then(|entry| entry.tokens.as_mut());
        tokens.map(|tokens| *tokens = used).is_some()
    }

    fn cancel(&mut self, call: u64, step: u32) {
        let gone =
            |entry: &Entry| (entry.call, entry.step) == (call, step) && entry.tokens.is_some();
        self.entries.retain(|entry| !gone(entry));
    }

    fn bury(&mut self, now_ms: u64, call: u64, step: u32) {
        self.forget(now_ms);
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

async fn marked(server: &Server) -> Link {
    let address = Address::parse(&server.url()).unwrap();
    drop(limiter(&server.url(), DEADLINE, &Ledger::default()).await);
    Link::to(&address).await.unwrap()
}

/// Steps at random, each with what the model says of it.
struct Steps {
    dice: Dice,
    /// Some windows are large.
    scale: u32,
    minute: Minute,
    model: Model,
    now_ms: u64,
    went_back: u32,
    /// Each call with the step it is at and when that was admitted.
    calls: Vec<(u64, u32, u64)>,
}

impl Steps {
    fn seeded(seed: u64) -> Self {
        Self {
            dice: Dice(seed),
            scale: if seed % 4 == 3 { 60 } else { 1 },
            minute: Minute::of("a", &format!("m{seed}")),
            model: Model::default(),
            now_ms: 1_800_000_000_000,
            went_back: 0,
            calls: Vec::new(),
        }
    }

    fn pass_time(&mut self) {
        let scale = u64::from(self.scale);
        self.now_ms += match self.dice.below(10) {
            0 => self.dice.below(30_000 / scale),
            1..4 => 0,
            _ => self.dice.below(3_000 / scale),
        };
        if self.dice.below(40) == 0 {
            self.now_ms -= self.dice.below(50_000);
            self.went_back += 1;
        }
    }

    fn ceilings(&mut self) -> Ceilings {
        let requests = [5, 8, 8, 8, 3, 0][usize::try_from(self.dice.below(6)).unwrap()];
        let tokens = 100 + 50 * u32::try_from(self.dice.below(3)).unwrap();
        Ceilings {
            requests: requests * self.scale,
            tokens: tokens * self.scale,
        }
    }

    fn need(&mut self) -> u64 {
        let most = match self.dice.below(20) {
            0 => 300,
            1 => 150 * u64::from(self.scale),
            _ => 50,
        };
        self.dice.below(most)
    }

    /// A call that was admitted, rather one of the latest, which are still there.
    fn some_call(&mut self) -> Option<usize> {
        let count = self.calls.len();
        let any = usize::try_from(self.dice.below(count.max(1) as u64)).unwrap();
        let at = any.max(count.saturating_sub(12 * self.scale as usize));
        (at < count).then_some(at)
    }

    fn next(&mut self, new_call: u64) -> (Run, Answer) {
        self.pass_time();
        let (ceilings, need, used) = (self.ceilings(), self.need(), self.dice.below(80));
        let (choice, known) = (self.dice.below(10), self.some_call());
        let Some(known) = known.filter(|_| choice >= 5) else {
            return self.admit(new_call, 0, need, ceilings);
        };
        let (call, step, _) = self.calls[known];
        let name = entry(call, step);
        let run = match choice {
            5 => {
                self.model.settle(call, step, used);
                Run::settle(&self.minute, &name, used)
            }
            6 => {
                self.model.cancel(call, step);
                Run::cancel(&self.minute, &name)
            }
            7 => {
                let step = step + u32::try_from(self.dice.below(2)).unwrap();
                self.model.bury(self.now_ms, call, step);
                Run::bury(&self.minute, &entry(call, step))
            }
            8 => return self.renew(known, used, need, ceilings),
            _ => return self.admit(call, step, need, ceilings),
        };
        (run, Answer::Done)
    }

    fn admit(&mut self, call: u64, step: u32, need: u64, ceilings: Ceilings) -> (Run, Answer) {
        let is_new = self.calls.iter().all(|known| known.0 != call);
        let answer = self.model.admit(self.now_ms, call, step, need, ceilings);
        if let (true, Answer::Admitted { at_ms }) = (is_new, &answer) {
            self.calls.push((call, step, *at_ms));
        }
        let run = Run::admit(&self.minute, &entry(call, step), need, ceilings);
        (run, answer)
    }

    fn renew(&mut self, known: usize, used: u64, need: u64, to: Ceilings) -> (Run, Answer) {
        let (call, step, at_ms) = self.calls[known];
        let (before, next) = (entry(call, step), entry(call, step + 1));
        let run = Run::renew(&self.minute, (&before, at_ms, used), (&next, need), to);
        self.model.forget(self.now_ms);
        let is_known = self.model.find(call, step + 1).is_some();
        let is_there = is_known || self.model.settle(call, step, used);
        if !is_there && self.now_ms.saturating_sub(at_ms) < WINDOW_MS {
            return (run, Answer::Lost);
        }
        let answer = self.model.admit(self.now_ms, call, step + 1, need, to);
        if let Answer::Admitted { at_ms } = answer {
            self.calls[known] = (call, step + 1, at_ms);
        }
        (run, answer)
    }
}

#[tokio::test]
async fn the_script_answers_as_the_window_in_memory_does() {
    let server = Server::start(&[]).await;
    let link = marked(&server).await;
    let (mut refused, mut lost, mut went_back) = (0, 0, 0);
    for seed in 0..24 {
        let mut steps = Steps::seeded(seed);
        for call in 0..if steps.scale > 1 { 1_200 } else { 250 } {
            let (run, expected) = steps.next(call);
            refused += u32::from(matches!(expected, Answer::Refused(_)));
            lost += u32::from(expected == Answer::Lost);
            let answer = run.at(steps.now_ms).ask(&link).await.unwrap();
            assert_eq!(answer, expected, "seed {seed}, call {call}");
        }
        went_back += steps.went_back;
    }
    assert!(
        refused > 500 && lost > 50 && went_back > 50,
        "{refused} {lost} {went_back}"
    );
}

#[tokio::test]
async fn a_window_leaves_nothing_behind_but_for_a_minute() {
    let server = Server::start(&[]).await;
    let link = marked(&server).await;
    let minute = Minute::of("a", "m");
    for call in 0..3 {
        let run = Run::admit(&minute, &entry(call, 0), 1, CEILINGS);
        run.ask(&link).await.unwrap();
    }
    let keys: Vec<String> = server.run("KEYS *:a:m").await;
    assert_eq!(keys.len(), 2);
    for key in keys {
        let left: i64 = server.run(&format!("PTTL {key}")).await;
        assert!((1..=61_000).contains(&left), "{key}: {left}");
    }
    let refused = Run::admit(&Minute::of("b", "m"), "1.0", 5_000, CEILINGS);
    refused.ask(&link).await.unwrap();
    let keys: Vec<String> = server.run("KEYS *:b:m").await;
    assert_eq!(keys, [] as [String; 0], "who is refused leaves nothing");
}

#[tokio::test]
async fn many_entries_slide_out_at_once() {
    let server = Server::start(&[]).await;
    let link = marked(&server).await;
    let minute = Minute::of("a", "m");
    let many = Ceilings {
        requests: 2_000,
        tokens: 4_000,
    };
    for call in 0..1_800 {
        let run = Run::admit(&minute, &entry(call, 0), 2, many).at(1_000 + call);
        run.ask(&link).await.unwrap();
    }
    let admit = |need, now_ms| Run::admit(&minute, "9999.0", need, many).at(now_ms);
    let answer = admit(4_000, 3_000).ask(&link).await.unwrap();
    let Answer::Refused(refusal) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(refusal.tokens_left, 400);
    assert_eq!(refusal.wait_ms, Some(1_000 + 1_799 + 60_000 - 3_000));
    let answer = admit(4_000, 62_799).ask(&link).await.unwrap();
    assert_eq!(answer, Answer::Admitted { at_ms: 62_799 });
}
