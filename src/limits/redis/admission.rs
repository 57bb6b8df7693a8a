//! A request that was admitted, and what becomes of it.

use std::sync::Arc;

use super::{
    super::{Ceilings, NotRenewed, Reservation},
    Shared,
    script::{Answer, Minute, Run, entry},
    steps::Unless,
    words::Word,
};

/// Places in the minute, one for each step so far.
///
/// Dropped without a word, it keeps the request counted and gives the tokens of its latest step
/// back: what was never reported was never used.
pub struct Admission {
    limiter: Arc<Shared>,
    minute: Arc<Minute>,
    call: u64,
    places: Vec<Reservation>,
    /// Whether it has not been said yet what became of the latest step.
    is_open: bool,
    /// Whether a try of which nothing was heard may still be on its way.
    is_uncertain: bool,
}

impl Admission {
    pub(super) fn new(
        limiter: Arc<Shared>,
        minute: Arc<Minute>,
        call: u64,
        place: Reservation,
        tries: u32,
    ) -> Self {
        Self {
            limiter,
            minute,
            call,
            places: vec![place],
            is_open: true,
            is_uncertain: tries > 1,
        }
    }

    /// The step that is over used this many tokens, and the next one may use `need`: admits it, or
    /// says why and for how long not. The request is not counted again.
    pub async fn renew(
        &mut self,
        used: u64,
        need: u64,
        ceilings: Ceilings,
    ) -> Result<(), NotRenewed> {
        if std::mem::take(&mut self.is_open) {
            self.latest().tokens = used;
        }
        let Reservation {
            at_ms,
            tokens,
            step,
        } = *self.latest();
        let (before, next) = (entry(self.call, step), entry(self.call, step + 1));
        let run = Run::renew(
            &self.minute,
            (&before, at_ms, tokens),
            (&next, need),
            ceilings,
        );
        let inner = &self.limiter.inner;
        let unless = Unless::heard(inner, Word::settle(&self.minute, &before, tokens));
        let answer = inner.step(&run, Word::bury(&self.minute, &next)).await;
        let (answer, tries) = answer.map_err(|_| NotRenewed::Lost)?;
        unless.was_heard();
        match answer {
            Answer::Admitted { at_ms } => {
                self.places.push(Reservation {
                    at_ms,
                    tokens: need,
                    step: step + 1,
                });
                (self.is_open, self.is_uncertain) = (true, tries > 1);
                Ok(())
            }
            Answer::Refused(refusal) => Err(NotRenewed::Refused(refusal)),
            _ => Err(NotRenewed::Lost),
        }
    }

    /// The request, or its latest step, used this many tokens, whatever it had reserved. What is
    /// said first counts.
    pub fn settle(&mut self, tokens: u64) {
        if std::mem::take(&mut self.is_open) {
            self.latest().tokens = tokens;
            let word = Word::settle(&self.minute, &self.entry(), tokens);
            self.limiter.inner.say(word);
        }
    }

    /// The request was refused after all, before anyone was asked: it does not count.
    pub fn cancel(mut self) {
        if std::mem::take(&mut self.is_open) {
            let word = if self.is_uncertain {
                Word::bury(&self.minute, &self.entry())
            } else {
                Word::cancel(&self.minute, &self.entry())
            };
            self.limiter.inner.say(word);
        }
    }

    /// Every step so far, the request itself first.
    pub fn places(&self) -> &[Reservation] {
        &self.places
    }

    fn latest(&mut self) -> &mut Reservation {
        self.places.last_mut().expect("it was admitted")
    }

    fn entry(&self) -> String {
        entry(self.call, self.places.last().map_or(0, |place| place.step))
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.settle(0);
    }
}
