//! State-machine test: compares the limiter with a complete list of all admissions, across restarts.

use std::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use tempfile::TempDir;

use super::*;
use crate::base::rate::{Limit, WINDOW_MS};

const START: u64 = 1_800_000_000_000;
const CEILINGS: Ceilings = Ceilings {
    requests: 5,
    tokens: 150,
};
const KEYS: [(&str, &str); 3] = [("a", "m"), ("a", "n"), ("b", "m")];

#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    now_ms: u64,
    /// Everything that was admitted, in order.
    entries: Vec<Entry>,
    calls: usize,
    /// Tokens of the finished calls, as the ledger would have them.
    used: HashMap<usize, u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    key: usize,
    at_ms: u64,
    tokens: u64,
    reserved: u64,
    running: bool,
    call: usize,
    /// Whether it is the request's first step, which counts as the request.
    first: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Admit {
        key: usize,
        need: u64,
    },
    /// Admitted by the limiter, and refused by a later check.
    AdmitAndCancel {
        key: usize,
        need: u64,
    },
    /// A step has ended, and another one is requested.
    Renew {
        which: usize,
        used: u64,
        need: u64,
    },
    Settle {
        which: usize,
        tokens: u64,
    },
    /// Dropped without being settled.
    Abandon {
        which: usize,
    },
    Advance {
        ms: u64,
    },
    /// The process is killed and started again.
    Restart,
}

impl Model {
    fn live(&self, key: usize, now_ms: u64) -> (u64, u64) {
        let live = self
            .entries
            .iter()
            .filter(|entry| entry.key == key && now_ms - entry.at_ms < WINDOW_MS);
        live.fold((0, 0), |(count, tokens), entry| {
            (count + u64::from(entry.first), tokens + entry.tokens)
        })
    }

    fn fits(&self, key: usize, need: u64, now_ms: u64) -> bool {
        let (count, _) = self.live(key, now_ms);
        count < u64::from(CEILINGS.requests) && self.step_fits(key, need, now_ms)
    }

    fn step_fits(&self, key: usize, need: u64, now_ms: u64) -> bool {
        let (_, tokens) = self.live(key, now_ms);
        tokens + need <= u64::from(CEILINGS.tokens)
    }

    fn add(&mut self, key: usize, tokens: u64, call: usize, first: bool) {
        self.entries.push(Entry {
            key,
            at_ms: self.now_ms,
            tokens,
            reserved: tokens,
            running: true,
            call,
            first,
        });
    }

    /// Ends a call: its latest step used `tokens`.
    fn finish(&mut self, which: usize, tokens: u64, charged: bool) {
        let at = self.running()[which];
        let call = self.entries[at].call;
        self.entries[at].tokens = tokens;
        self.entries[at].running = false;
        let steps = self.entries.iter().filter(|entry| entry.call == call);
        let used = steps.map(|entry| entry.tokens).sum();
        self.used.insert(call, if charged { used } else { 0 });
    }

    fn running(&self) -> Vec<usize> {
        let entries = self.entries.iter().enumerate();
        let running = entries.filter(|(_, entry)| entry.running);
        running.map(|(at, _)| at).collect()
    }
}

impl ReferenceStateMachine for Model {
    type State = Model;
    type Transition = Event;

    fn init_state() -> BoxedStrategy<Model> {
        let model = Model {
            now_ms: START,
            ..Model::default()
        };
        Just(model).boxed()
    }

    fn transitions(model: &Model) -> BoxedStrategy<Event> {
        let running = model.running().len();
        let need = || 0_u64..80;
        let any = prop_oneof![
            8 => (0..KEYS.len(), need()).prop_map(|(key, need)| Event::Admit { key, need }),
            1 => (0..KEYS.len(), need()).prop_map(|(key, need)| Event::AdmitAndCancel { key, need }),
            4 => (0_u64..25_000).prop_map(|ms| Event::Advance { ms }),
            // To the edge of the window, where one millisecond decides.
            1 => prop_oneof![Just(WINDOW_MS), Just(WINDOW_MS - 1), Just(1)]
                .prop_map(|ms| Event::Advance { ms }),
            1 => Just(Event::Restart),
        ];
        if running == 0 {
            return any.boxed();
        }
        prop_oneof![
            4 => any,
            2 => (0..running, 0_u64..60, need())
                .prop_map(|(which, used, need)| Event::Renew { which, used, need }),
            2 => (0..running, 0_u64..200).prop_map(|(which, tokens)| Event::Settle { which, tokens }),
            1 => (0..running).prop_map(|which| Event::Abandon { which }),
        ]
        .boxed()
    }

    fn preconditions(model: &Model, event: &Event) -> bool {
        match event {
            Event::Renew { which, .. } | Event::Settle { which, .. } | Event::Abandon { which } => {
                *which < model.running().len()
            }
            _ => true,
        }
    }

    fn apply(mut model: Model, event: &Event) -> Model {
        match *event {
            Event::Admit { key, need } => {
                if model.fits(key, need, model.now_ms) {
                    model.calls += 1;
                    model.add(key, need, model.calls, true);
                }
            }
            Event::AdmitAndCancel { .. } => {}
            Event::Renew { which, used, need } => {
                let at = model.running()[which];
                let (key, call) = (model.entries[at].key, model.entries[at].call);
                model.entries[at].tokens = used;
                if model.step_fits(key, need, model.now_ms) {
                    model.entries[at].running = false;
                    model.add(key, need, call, false);
                } else {
                    model.finish(which, used, false);
                }
            }
            Event::Settle { which, tokens } => model.finish(which, tokens, true),
            Event::Abandon { which } => model.finish(which, 0, false),
            Event::Advance { ms } => model.now_ms += ms,
            Event::Restart => {
                // A call's usage counts as one sum at its last step that is still in the window.
                let latest: HashMap<usize, usize> = model
                    .entries
                    .iter()
                    .map(|entry| entry.call)
                    .zip(0..)
                    .collect();
                for (at, entry) in model.entries.iter_mut().enumerate() {
                    entry.running = false;
                    match model.used.get(&entry.call) {
                        Some(used) if latest[&entry.call] == at => entry.tokens = *used,
                        Some(_) => entry.tokens = 0,
                        // The ledger does not have it: it counts with the tokens it reserved.
                        None => entry.tokens = entry.reserved,
                    }
                }
            }
        }
        model
    }
}

pub(crate) struct Real {
    folder: TempDir,
    now_ms: Arc<AtomicU64>,
    limiter: Arc<Memory>,
    /// In the order of the model's running entries.
    running: Vec<Running>,
    calls: u64,
    /// Tokens of the finished calls, as the ledger would have them.
    used: HashMap<u64, u64>,
}

struct Running {
    call: u64,
    admission: Admission,
    /// Tokens that its earlier steps used.
    before: u64,
}

impl Real {
    fn resume(&mut self) {
        let clock = Clock::Manual(self.now_ms.clone());
        let database = self.folder.path().join("t.db");
        let resumed = Memory::resume_at(clock, &database, &self.used);
        self.limiter = Arc::new(resumed.unwrap());
    }

    fn finish(&mut self, which: usize, tokens: Option<u64>) {
        let mut running = self.running.remove(which);
        let used = tokens.map_or(0, |tokens| running.before + tokens);
        self.used.insert(running.call, used);
        if let Some(tokens) = tokens {
            running.admission.settle(tokens);
        }
    }
}

fn check_step_refusal(refusal: &Refusal, model: &Model, key: usize, need: u64) {
    assert_eq!(refusal.limit, Limit::Tokens);
    let wait = refusal.wait_ms.expect("it is smaller than the ceiling");
    assert!(model.step_fits(key, need, model.now_ms + wait));
    assert!(!model.step_fits(key, need, model.now_ms + wait - 1));
}

fn check_refusal(refusal: &Refusal, model: &Model, key: usize, need: u64) {
    let (count, tokens) = model.live(key, model.now_ms);
    let left = |ceiling: u32, used: u64| u64::from(ceiling).saturating_sub(used);
    let expected = (
        left(CEILINGS.requests, count),
        left(CEILINGS.tokens, tokens),
    );
    let found = (refusal.requests_left.into(), refusal.tokens_left.into());
    assert_eq!(found, expected);
    let full = count >= u64::from(CEILINGS.requests);
    assert_eq!(refusal.limit == Limit::Requests, full);
    let wait = refusal.wait_ms.expect("it is smaller than the ceiling");
    assert!(
        model.fits(key, need, model.now_ms + wait),
        "it fits after {wait} ms"
    );
    assert!(
        !model.fits(key, need, model.now_ms + wait - 1),
        "and not a millisecond earlier"
    );
}

struct LimiterMachine;

impl StateMachineTest for LimiterMachine {
    type SystemUnderTest = Real;
    type Reference = Model;

    fn init_test(_: &Model) -> Real {
        let mut real = Real {
            folder: TempDir::new().unwrap(),
            now_ms: Arc::new(AtomicU64::new(START)),
            limiter: Arc::default(),
            running: Vec::new(),
            calls: 0,
            used: HashMap::new(),
        };
        real.resume();
        real
    }

    fn apply(mut real: Real, model: &Model, event: Event) -> Real {
        match event {
            Event::Admit { key, need } => {
                let (account, of) = KEYS[key];
                let call = real.calls + 1;
                let admitted = real.limiter.admit(call, account, of, need, CEILINGS);
                let expected = model.running().len() > real.running.len();
                assert_eq!(admitted.is_ok(), expected);
                match admitted {
                    Ok(admission) => {
                        real.calls = call;
                        admission.keep().unwrap();
                        real.running.push(Running {
                            call,
                            admission,
                            before: 0,
                        });
                    }
                    Err(refusal) => check_refusal(&refusal, model, key, need),
                }
            }
            Event::AdmitAndCancel { key, need } => {
                let (account, of) = KEYS[key];
                let call = real.calls + 1;
                match real.limiter.admit(call, account, of, need, CEILINGS) {
                    Ok(admission) => admission.cancel(),
                    Err(refusal) => check_refusal(&refusal, model, key, need),
                }
            }
            Event::Renew { which, used, need } => {
                let mut running = real.running.remove(which);
                let key = running.admission.key.clone();
                match running.admission.renew(used, need, CEILINGS) {
                    Ok(()) => {
                        running.admission.keep().unwrap();
                        running.before += used;
                        real.running.push(running);
                    }
                    Err(refusal) => {
                        let is_key =
                            |(account, of): &(&str, &str)| *key == format!("{account} {of}");
                        let key = KEYS.iter().position(is_key).unwrap();
                        check_step_refusal(&refusal, model, key, need);
                        real.used.insert(running.call, 0);
                    }
                }
                assert_eq!(real.running.len(), model.running().len());
            }
            Event::Settle { which, tokens } => real.finish(which, Some(tokens)),
            Event::Abandon { which } => real.finish(which, None),
            Event::Advance { ms } => {
                real.now_ms.fetch_add(ms, Relaxed);
            }
            Event::Restart => {
                // Killed: the running calls are never settled, nor dropped.
                for running in real.running.drain(..) {
                    std::mem::forget(running.admission);
                }
                real.resume();
            }
        }
        real
    }

    fn check_invariants(real: &Real, _: &Model) {
        for shard in &real.limiter.shards {
            for window in shard.lock().unwrap().windows.values() {
                assert!(
                    window.requests() <= CEILINGS.requests as usize,
                    "more requests than the ceiling"
                );
            }
        }
    }
}

proptest! {
    /// If the clock is set back while the process is down, requests may be delayed, but none is admitted that would
    /// have had to wait.
    #[test]
    fn a_clock_that_was_set_back_admits_no_more(
        back_ms in 0_u64..200_000, later_ms in 0_u64..70_000, before in 0_usize..8,
    ) {
        let clock = Arc::new(AtomicU64::new(START));
        let folder = TempDir::new().unwrap();
        let database = folder.path().join("t.db");
        let resume = || {
            let clock = Clock::Manual(clock.clone());
            Arc::new(Memory::resume_at(clock, &database, &HashMap::new()).unwrap())
        };
        let admit_all = |limiter: &Arc<Memory>, times: usize| {
            let admitted = (0..times).filter_map(|call| {
                let admission = limiter.admit(call as u64, "a", "m", 1, CEILINGS).ok()?;
                admission.keep().unwrap();
                Some(admission)
            });
            admitted.collect::<Vec<_>>()
        };
        let first = admit_all(&resume(), before).len();
        clock.fetch_sub(back_ms, Relaxed);
        let limiter = resume();
        let second = admit_all(&limiter, 10).len();
        prop_assert_eq!(first + second, 5, "the window did not start anew");
        clock.fetch_add(later_ms, Relaxed);
        let third = admit_all(&limiter, 10).len();
        prop_assert_eq!(third, if later_ms < WINDOW_MS { 0 } else { 5 });
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]
    #[test]
    fn the_limiter_agrees_with_the_list_of_admissions(sequential 1..60 => LimiterMachine);
}
