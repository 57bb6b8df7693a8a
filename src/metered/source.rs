//! The parts of a streamed answer, over as many steps as it takes.

use std::{collections::VecDeque, time::Duration};

use futures_util::StreamExt as _;
use tokio::time::Instant;

use super::{
    Admitted, Begun,
    ask::{self, Opened, Reader, TimeLeft, is_plausible},
    assembled::Assembled,
    attempts::Attempts,
    failure::Failure,
    tool_loop::{Next, Steps, is_silent},
};
use crate::{
    gateway::Gateway,
    prompt::ChatCall,
    upstream::Parts,
    wire::{
        chat::{Answer, FinishReason, ToolChoice, Usage},
        error::UpstreamError,
        part::Part,
        stream_normalizer::StreamNormalizer,
    },
};

/// How much of an answer is read before it is believed to be one, where the model could still call a
/// tool. What models say on their way to a tool is not part of the answer; it is shorter, and the
/// call follows at once.
const PREAMBLE_BYTES: usize = 400;
const PREAMBLE_PAUSE: Duration = Duration::from_millis(500);
/// However slowly it comes.
const PREAMBLE_TIME: Duration = Duration::from_secs(3);

/// Where the parts of an answer come from.
///
/// Where the gateway has offered tools of its own, what calls them is kept back and acted on, and
/// the parts that come out are those of the answer alone: its finish and its usage last.
pub struct Source {
    ready: VecDeque<Part>,
    /// What is still being read; nothing where all of it is ready.
    live: Option<Live>,
    /// Where tools of the gateway's were offered.
    steps: Option<Steps>,
}

struct Live {
    parts: Parts,
    time_left: TimeLeft,
    /// All of the answer, where it may turn out to call a tool.
    heard: Option<StreamNormalizer<Assembled>>,
    /// How it broke off, if it has already.
    broken: Option<UpstreamError>,
}

/// What a call is made with.
pub struct Means<'a, 'b> {
    pub gateway: &'a Gateway,
    pub call: &'b mut ChatCall,
    pub admitted: &'b mut Admitted<'a>,
}

impl Means<'_, '_> {
    /// What is charged for the present question by a provider's count; nothing where that cannot be true.
    fn charged(&mut self, reported: Option<Usage>) -> Option<Usage> {
        let plausible = reported.filter(|usage| is_plausible(self.call, *usage));
        plausible.map(|usage| self.admitted.charged(self.call, usage))
    }
}

impl Source {
    /// Returns when there is something to hand on: until then a failure can have a status of its
    /// own, and another upstream can be asked.
    pub async fn open(means: &mut Means<'_, '_>, begun: &Begun) -> Result<Self, Failure> {
        if !means.call.tools.are_built_in() {
            let Means {
                gateway,
                call,
                admitted,
            } = means;
            let attempts = Attempts::new(gateway, Some(begun));
            let opened = ask::for_parts(attempts, call, admitted, Plain::new).await?;
            let live = Live {
                parts: opened.parts,
                time_left: opened.time_left,
                heard: None,
                broken: None,
            };
            return Ok(Self {
                ready: opened.reader.parts,
                live: Some(live),
                steps: None,
            });
        }
        let mut source = Self {
            ready: VecDeque::new(),
            live: None,
            steps: Some(Steps::default()),
        };
        Box::pin(source.step(means, Some(begun))).await?;
        Ok(source)
    }

    /// The next part, or `None` after the last.
    pub async fn next(&mut self, means: &mut Means<'_, '_>) -> Result<Option<Part>, Failure> {
        loop {
            if let Some(part) = self.ready.pop_front() {
                return Ok(Some(part));
            }
            let Some(live) = &mut self.live else {
                return Ok(None);
            };
            if let Some(error) = live.broken.take() {
                return Err(error.into());
            }
            let part = live.time_left.of(live.parts.next()).await?.transpose()?;
            let Some(heard) = &mut live.heard else {
                return Ok(part);
            };
            if let Some(part) = part {
                self.ready.extend(spoken(&part).cloned());
                heard.on_part(part)?;
                continue;
            }
            heard.close()?;
            let heard = self.live.take().and_then(|live| live.heard);
            if let Some(heard) = heard {
                let answer = assembled(heard, means);
                // Boxed, here and below: most answers call no tool, and need no room for it.
                match Box::pin(self.closing(answer, None, means)).await? {
                    Some(closing) => self.ready.extend(closing),
                    None => Box::pin(self.step(means, None)).await?,
                }
            }
        }
    }

    /// What is charged by a count that came out of here; nothing where it cannot be true. The sum of several steps
    /// was judged one by one.
    pub fn charged(&self, means: &mut Means<'_, '_>, reported: Option<Usage>) -> Option<Usage> {
        match &self.steps {
            Some(_) => reported,
            None => means.charged(reported),
        }
    }

    /// Asks until there is something of the answer, running the tools that are called on the way.
    async fn step(
        &mut self,
        means: &mut Means<'_, '_>,
        begun: Option<&Begun>,
    ) -> Result<(), Failure> {
        loop {
            let Means {
                gateway,
                call,
                admitted,
            } = &mut *means;
            let steps = self.steps.get_or_insert_default();
            steps.begin(call, admitted).await?;
            let attempts = Attempts::new(gateway, begun);
            let opened = ask::for_parts(attempts, call, admitted, Attentive::new).await?;
            let Opened {
                parts,
                reader,
                time_left,
            } = opened;
            if !reader.is_over {
                self.ready.extend(reader.spoken);
                self.live = Some(Live {
                    parts,
                    time_left,
                    heard: Some(reader.heard),
                    broken: reader.broken,
                });
                return Ok(());
            }
            let answer = assembled(reader.heard, means);
            if let Some(closing) = self.closing(answer, begun, means).await? {
                self.ready.extend(reader.spoken);
                self.ready.extend(closing);
                return Ok(());
            }
        }
    }

    /// The parts that end an answer which is over. `None` if it called tools: they have been run.
    async fn closing(
        &mut self,
        mut answer: Answer,
        begun: Option<&Begun>,
        means: &mut Means<'_, '_>,
    ) -> Result<Option<Vec<Part>>, Failure> {
        let Means {
            gateway,
            call,
            admitted,
        } = means;
        let silent: Vec<_> = answer.choices.iter().map(is_silent).collect();
        let left = begun.is_some_and(Begun::is_closed);
        let steps = self.steps.get_or_insert_default();
        let next = steps.after(&mut answer, left, gateway, call, admitted);
        if let Next::AskAgain = next.await? {
            return Ok(None);
        }
        let mut closing = Vec::new();
        for (choice, was_silent) in answer.choices.into_iter().zip(silent) {
            let index = choice.index;
            // What was said in place of an answer has not been heard yet.
            let text = choice.content.filter(|_| was_silent);
            closing.extend(text.map(|text| Part::Content {
                choice: index,
                text,
                logprobs: None,
            }));
            closing.push(Part::Finish {
                choice: index,
                reason: choice.finish,
            });
        }
        closing.extend(answer.usage.map(Part::Usage));
        Ok(Some(closing))
    }
}

/// How many bytes of an answer are enough to believe that it is one.
fn enough(call: &ChatCall) -> usize {
    match call.tool_choice {
        Some(ToolChoice::None) => 0, // it can be nothing else
        _ => PREAMBLE_BYTES,
    }
}

/// One step's answer, with what is charged for it.
fn assembled(heard: StreamNormalizer<Assembled>, means: &mut Means<'_, '_>) -> Answer {
    let usage = means.charged(heard.usage());
    heard.into_writer().into_answer(usage)
}

/// What of a part the caller hears at once.
fn spoken(part: &Part) -> Option<&Part> {
    matches!(part, Part::Content { .. }).then_some(part)
}

/// Reads up to the first part that makes a frame.
struct Plain {
    parts: VecDeque<Part>,
    n: u32,
    /// The only choice is over before anything was said.
    silent: bool,
}

impl Plain {
    fn new(call: &ChatCall) -> Self {
        Self {
            parts: VecDeque::with_capacity(2),
            n: call.choices(),
            silent: false,
        }
    }
}

impl Reader for Plain {
    fn read(&mut self, part: Part) -> Result<bool, UpstreamError> {
        let enough = match part {
            Part::Finish {
                reason: FinishReason::Stop,
                ..
            } if self.n == 1 => {
                self.silent = true;
                true
            }
            Part::Content { choice, .. }
            | Part::ToolCall { choice, .. }
            | Part::Finish { choice, .. } => choice < self.n,
            Part::Usage(_) | Part::Silence => false,
        };
        self.parts.push_back(part);
        Ok(enough)
    }

    fn end(&mut self) -> Result<(), UpstreamError> {
        Err(UpstreamError::Broken("an empty stream".into()))
    }

    fn broke(&mut self, error: UpstreamError) -> Result<(), UpstreamError> {
        Err(error)
    }

    fn is_silent(&self) -> bool {
        self.silent
    }

    fn timeout(&self) -> Option<Duration> {
        None
    }
}

/// Reads until it is clear whether the model answers or calls a tool.
struct Attentive {
    heard: StreamNormalizer<Assembled>,
    spoken: Vec<Part>,
    bytes: usize,
    enough: usize,
    /// When the model began to speak.
    since: Option<Instant>,
    calls: bool,
    /// Why the model ended, once it has.
    finish: Option<FinishReason>,
    /// There is something in a choice that is not the first.
    others_speak: bool,
    is_over: bool,
    broken: Option<UpstreamError>,
}

impl Attentive {
    fn new(call: &ChatCall) -> Self {
        Self {
            heard: StreamNormalizer::new(Assembled::default(), call.choices()),
            spoken: Vec::new(),
            bytes: 0,
            enough: enough(call),
            since: None,
            calls: false,
            finish: None,
            others_speak: false,
            is_over: false,
            broken: None,
        }
    }

    fn is_speaking(&self) -> bool {
        self.bytes > 0 && !self.calls
    }
}

impl Reader for Attentive {
    fn read(&mut self, part: Part) -> Result<bool, UpstreamError> {
        match &part {
            Part::Content {
                choice: 0, text, ..
            } => {
                self.bytes += text.as_json().len() - 2;
                self.since.get_or_insert_with(Instant::now);
            }
            Part::ToolCall { choice: 0, .. }
            | Part::Finish {
                choice: 0,
                reason: FinishReason::ToolCalls,
            } => self.calls = true,
            Part::Finish { choice: 0, reason } => self.finish = Some(*reason),
            Part::Content { .. } => self.others_speak = true,
            _ => {}
        }
        self.spoken.extend(spoken(&part).cloned());
        self.heard.on_part(part)?;
        Ok(!self.calls && self.bytes > self.enough)
    }

    fn end(&mut self) -> Result<(), UpstreamError> {
        match self.heard.close() {
            Ok(()) => self.is_over = true,
            Err(error) => self.broke(error)?,
        }
        Ok(())
    }

    /// A model that has begun to speak is heard, even if it is cut short.
    fn broke(&mut self, error: UpstreamError) -> Result<(), UpstreamError> {
        if !self.is_speaking() {
            return Err(error);
        }
        self.broken = Some(error);
        Ok(())
    }

    fn is_silent(&self) -> bool {
        let finished = self.is_over && self.finish == Some(FinishReason::Stop);
        finished && self.bytes == 0 && !self.calls && !self.others_speak
    }

    fn timeout(&self) -> Option<Duration> {
        let since = self.since.filter(|_| self.is_speaking())?;
        let left = PREAMBLE_TIME.saturating_sub(since.elapsed());
        Some(left.min(PREAMBLE_PAUSE))
    }
}
