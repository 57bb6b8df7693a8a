//! The parts of a streamed answer, across the steps of a call with built-in tools.

use std::{collections::VecDeque, time::Duration};

use futures_util::StreamExt as _;
use tokio::time::Instant;

use super::{
    Admitted, Client,
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

/// After this much text, a step that may still call a tool is taken for the answer. Models that are about to call a tool
/// write less than this, and make the call at once.
const PREAMBLE_BYTES: usize = 400;
/// A pause this long after some text also counts as the answer.
const PREAMBLE_PAUSE: Duration = Duration::from_millis(500);
/// So does text that has been arriving for this long.
const PREAMBLE_TIME: Duration = Duration::from_secs(3);

/// The parts of a streamed answer.
///
/// With built-in tools, steps that call tools are held back and their tools run; the parts that come out are those of the
/// answer only, with finish and usage last.
pub(crate) struct Source {
    ready: VecDeque<Part>,
    /// The stream that is still being read; `None` when all of it is in `ready`.
    live: Option<Live>,
    /// Only for calls with built-in tools.
    steps: Option<Steps>,
}

struct Live {
    parts: Parts,
    time_left: TimeLeft,
    /// The answer so far, if it may still call a tool.
    collected: Option<StreamNormalizer<Assembled>>,
    /// The error that broke the stream off, if it has already.
    broken: Option<UpstreamError>,
}

/// The parts of a call that its stream needs.
pub(crate) struct CallParts<'a> {
    pub gateway: &'a Gateway,
    pub call: &'a mut ChatCall,
    pub admitted: &'a mut Admitted,
}

impl CallParts<'_> {
    /// The usage that is billed for the current step; `None` if the report is missing or implausible.
    fn billable(&mut self, reported: Option<Usage>) -> Option<Usage> {
        let plausible = reported.filter(|usage| is_plausible(self.call, *usage));
        plausible.map(|usage| self.admitted.billable(self.call, usage))
    }
}

impl Source {
    /// Opens the stream. Returns when there is something to relay: until then a failure has a status of its own, and
    /// another deployment can be tried.
    pub(crate) async fn open(means: &mut CallParts<'_>, client: &Client) -> Result<Self, Failure> {
        if !means.call.tools.are_built_in() {
            let CallParts {
                gateway,
                call,
                admitted,
            } = means;
            let attempts = Attempts::new(gateway, Some(client));
            let opened = ask::for_parts(attempts, call, admitted, Plain::new).await?;
            let live = Live {
                parts: opened.parts,
                time_left: opened.time_left,
                collected: None,
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
        Box::pin(source.step(means, Some(client))).await?;
        Ok(source)
    }

    /// The next part, or `None` after the last.
    pub(crate) async fn next(
        &mut self,
        means: &mut CallParts<'_>,
    ) -> Result<Option<Part>, Failure> {
        loop {
            if let Some(part) = self.ready.pop_front() {
                self.describe(&part, means);
                return Ok(Some(part));
            }
            let Some(live) = &mut self.live else {
                return Ok(None);
            };
            if let Some(error) = live.broken.take() {
                return Err(error.into());
            }
            let part = live.time_left.of(live.parts.next()).await?.transpose()?;
            let Some(collected) = &mut live.collected else {
                if let Some(part) = &part {
                    self.describe(part, means);
                }
                return Ok(part);
            };
            if let Some(part) = part {
                self.ready.extend(relayed(&part).cloned());
                collected.on_part(part)?;
                continue;
            }
            collected.close()?;
            let collected = self.live.take().and_then(|live| live.collected);
            if let Some(collected) = collected {
                let answer = assembled(collected, means);
                // Boxed, here and below: most answers call no tool, and should reserve no memory for it.
                match Box::pin(self.closing(answer, None, means)).await? {
                    Some(closing) => self.ready.extend(closing),
                    None => Box::pin(self.step(means, None)).await?,
                }
            }
        }
    }

    /// Tells the span of a part. With built-in tools it is told of each step's whole answer.
    fn describe(&self, part: &Part, means: &mut CallParts<'_>) {
        if self.steps.is_none() {
            means.admitted.spans.part(part);
        }
    }

    /// The usage that is billed for the stream; `None` if the report is missing or implausible. With built-in tools each
    /// step was checked before, and `reported` is their sum.
    pub(crate) fn billable(
        &self,
        means: &mut CallParts<'_>,
        reported: Option<Usage>,
    ) -> Option<Usage> {
        match &self.steps {
            Some(_) => reported,
            None => means.billable(reported),
        }
    }

    /// Runs steps, and the tools they call, until there is something of the answer.
    async fn step(
        &mut self,
        means: &mut CallParts<'_>,
        client: Option<&Client>,
    ) -> Result<(), Failure> {
        loop {
            let CallParts {
                gateway,
                call,
                admitted,
            } = &mut *means;
            let steps = self.steps.get_or_insert_default();
            steps.begin(call, admitted).await?;
            let attempts = Attempts::new(gateway, client);
            let opened = ask::for_parts(attempts, call, admitted, Attentive::new).await?;
            let Opened {
                parts,
                reader,
                time_left,
                ..
            } = opened;
            if !reader.is_over {
                self.ready.extend(reader.relayed);
                self.live = Some(Live {
                    parts,
                    time_left,
                    collected: Some(reader.collected),
                    broken: reader.broken,
                });
                return Ok(());
            }
            let answer = assembled(reader.collected, means);
            if let Some(closing) = self.closing(answer, client, means).await? {
                self.ready.extend(reader.relayed);
                self.ready.extend(closing);
                return Ok(());
            }
        }
    }

    /// The last parts of an answer that is over; `None` if it called tools, which have been run.
    async fn closing(
        &mut self,
        mut answer: Answer,
        client: Option<&Client>,
        means: &mut CallParts<'_>,
    ) -> Result<Option<Vec<Part>>, Failure> {
        let CallParts {
            gateway,
            call,
            admitted,
        } = means;
        let silent: Vec<_> = answer.choices.iter().map(is_silent).collect();
        let left = client.is_some_and(Client::has_left);
        let steps = self.steps.get_or_insert_default();
        let next = steps.after(&mut answer, left, gateway, call, admitted);
        if let Next::AskAgain = next.await? {
            return Ok(None);
        }
        let mut closing = Vec::new();
        for (choice, was_silent) in answer.choices.into_iter().zip(silent) {
            let index = choice.index;
            // An explanation in place of an empty answer has not been relayed yet.
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

/// How many bytes of text are enough to take a step for the answer.
fn enough(call: &ChatCall) -> usize {
    match call.tool_choice {
        Some(ToolChoice::None) => 0, // it cannot call a tool
        _ => PREAMBLE_BYTES,
    }
}

/// The answer of one step, with the usage that is billed.
fn assembled(collected: StreamNormalizer<Assembled>, means: &mut CallParts<'_>) -> Answer {
    let usage = means.billable(collected.usage());
    let answer = collected.into_writer().into_answer(usage);
    means.admitted.spans.answered(&answer);
    answer
}

/// The part, if it is relayed at once: text is.
fn relayed(part: &Part) -> Option<&Part> {
    matches!(part, Part::Content { .. }).then_some(part)
}

/// Reads up to the first part that makes a frame: for calls without built-in tools.
struct Plain {
    parts: VecDeque<Part>,
    n: u32,
    /// The only choice ended without text.
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
            Part::Native(ref event) => event.is_content(),
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

/// Reads until the model either answers or calls a tool.
struct Attentive {
    collected: StreamNormalizer<Assembled>,
    relayed: Vec<Part>,
    bytes: usize,
    enough: usize,
    /// When the first text arrived.
    since: Option<Instant>,
    calls: bool,
    /// The finish reason, once it is known.
    finish: Option<FinishReason>,
    /// Another choice than the first has text.
    others_have_text: bool,
    is_over: bool,
    broken: Option<UpstreamError>,
}

impl Attentive {
    fn new(call: &ChatCall) -> Self {
        Self {
            collected: StreamNormalizer::new(Assembled::default(), call.choices()),
            relayed: Vec::new(),
            bytes: 0,
            enough: enough(call),
            since: None,
            calls: false,
            finish: None,
            others_have_text: false,
            is_over: false,
            broken: None,
        }
    }

    fn has_text(&self) -> bool {
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
            Part::Content { .. } => self.others_have_text = true,
            _ => {}
        }
        self.relayed.extend(relayed(&part).cloned());
        self.collected.on_part(part)?;
        Ok(!self.calls && self.bytes > self.enough)
    }

    fn end(&mut self) -> Result<(), UpstreamError> {
        match self.collected.close() {
            Ok(()) => self.is_over = true,
            Err(error) => self.broke(error)?,
        }
        Ok(())
    }

    /// Text that has arrived is relayed even if the stream breaks off.
    fn broke(&mut self, error: UpstreamError) -> Result<(), UpstreamError> {
        if !self.has_text() {
            return Err(error);
        }
        self.broken = Some(error);
        Ok(())
    }

    fn is_silent(&self) -> bool {
        let finished = self.is_over && self.finish == Some(FinishReason::Stop);
        finished && self.bytes == 0 && !self.calls && !self.others_have_text
    }

    fn timeout(&self) -> Option<Duration> {
        let since = self.since.filter(|_| self.has_text())?;
        let left = PREAMBLE_TIME.saturating_sub(since.elapsed());
        Some(left.min(PREAMBLE_PAUSE))
    }
}
