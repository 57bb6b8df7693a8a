//! Settings of the routers by which hybrids choose a target.

use std::time::Duration;

use crate::base::checked_toml::{Section, Value, as_fraction, as_integer, as_text};

/// Domains that the scorer can assign to a prompt.
pub const DOMAINS: [&str; 11] = [
    "mathematics",
    "code",
    "physics",
    "chemistry",
    "health",
    "law",
    "business",
    "society",
    "history",
    "philosophy",
    "general",
];

const KINDS: [&str; 4] = ["semantic", "cost", "tiered", "turn"];

#[derive(Clone, Debug, PartialEq)]
pub enum Router {
    Semantic(Semantic),
    Cost(Cost),
    Tiered(Tiered),
    Turn(Turn),
}

/// Chooses by the domain of the prompt, or by its similarity to example texts.
#[derive(Clone, Debug, PartialEq)]
pub struct Semantic {
    pub routes: Vec<SemanticRoute>,
    /// Targets of prompts that match no route; the first available one is chosen.
    pub default: Vec<String>,
    /// Lowest score at which a domain selects its route.
    pub confidence: f32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SemanticRoute {
    pub name: String,
    pub domains: Vec<String>,
    /// Example prompts of this route.
    pub exemplars: Vec<String>,
    /// Targets of this route; the first available one is chosen.
    pub models: Vec<String>,
    /// Lowest similarity to an exemplar at which it selects this route.
    pub threshold: f32,
}

impl SemanticRoute {
    pub(crate) fn has(&self, domain: &str) -> bool {
        self.domains.iter().any(|one| one == domain)
    }
}

impl Semantic {
    /// Whether any route is for this domain.
    pub(crate) fn has(&self, domain: &str) -> bool {
        self.routes.iter().any(|route| route.has(domain))
    }
}

/// Chooses the cheapest target that is nearly as good as the best one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Tolerance: how much lower the chosen target's predicted quality may be than the best one's.
    pub give: f32,
}

/// Chooses a quality tier by the difficulty of the prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tiered {
    /// Difficulties at which the second, third and fourth tier begin.
    pub cuts: [f32; 3],
    /// Lowest tier for requests with both tools and a JSON schema.
    pub tools_floor: u8,
    /// Lowest tier for prompts of more than `context_tokens` tokens.
    pub context_floor: u8,
    pub context_tokens: u64,
}

/// Chooses again on each turn of a conversation, and counts the provider's cache that a change of target would lose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// Weight of cost against quality: the quality that the full cost of the most expensive target is worth.
    pub lambda: f32,
    /// How much better another target must score before the conversation changes to it.
    pub hysteresis: f32,
    /// Assumed lifetime of a provider's cache, and so of a session.
    pub ttl: Duration,
    /// Most sessions in memory.
    pub sessions: usize,
}

impl Default for Cost {
    fn default() -> Self {
        Self { give: 0.10 }
    }
}

impl Default for Tiered {
    fn default() -> Self {
        Self {
            cuts: [0.2, 0.3, 0.65],
            tools_floor: 2,
            context_floor: 2,
            context_tokens: 32_000,
        }
    }
}

impl Default for Turn {
    fn default() -> Self {
        Self {
            lambda: 0.2,
            hysteresis: 0.02,
            ttl: Duration::from_mins(5),
            sessions: 100_000,
        }
    }
}

impl Router {
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Semantic(_) => "semantic",
            Self::Cost(_) => "cost",
            Self::Tiered(_) => "tiered",
            Self::Turn(_) => "turn",
        }
    }

    /// Reads `router` and the table of that name; a hybrid without `router` chooses by cost. `None` for other models.
    pub(super) fn read(section: &mut Section, targets: &[String]) -> Option<Self> {
        let written = section.contains("router");
        let kind = section.optional("router", "semantic, cost, tiered or turn", |value| {
            let kind = as_text(value)?;
            KINDS.into_iter().find(|known| *known == kind)
        });
        if targets.is_empty() {
            if written {
                section.mistake("router", "is for hybrids, and there are no `targets`");
            }
            return None;
        }
        let kind = kind.unwrap_or("cost");
        for other in KINDS.into_iter().filter(|other| *other != kind) {
            let message = format!("is for the router `{other}`, and this one is `{kind}`");
            section.refuse(other, &message);
        }
        let settings = section.section(kind);
        Some(match kind {
            "semantic" => Self::Semantic(semantic(settings, targets)),
            "tiered" => Self::Tiered(tiered(settings)),
            "turn" => Self::Turn(turn(settings)),
            _ => Self::Cost(cost(settings)),
        })
    }
}

fn fraction(section: &mut Section, key: &str) -> Option<f32> {
    section.optional(key, "a number from 0 to 1", as_fraction)
}

fn semantic(mut section: Section, targets: &[String]) -> Semantic {
    let listed = |section: &mut Section, key: &str| {
        let models = section.texts(key, "a list of the hybrid's targets");
        let models = models.unwrap_or_default();
        let unknown = models.iter().filter(|model| !targets.contains(model));
        for model in unknown {
            section.mistake(key, &format!("names `{model}`, which is no target"));
        }
        models
    };
    let mut routes: Vec<SemanticRoute> = Vec::new();
    for mut route in section.list_of_sections("routes") {
        let name = route.required("name", "a name for the route", as_text);
        let texts = |route: &mut Section, key| route.texts(key, "a list of texts");
        let read = SemanticRoute {
            name: name.unwrap_or_default(),
            domains: texts(&mut route, "domains").unwrap_or_default(),
            exemplars: texts(&mut route, "exemplars").unwrap_or_default(),
            models: listed(&mut route, "models"),
            threshold: fraction(&mut route, "threshold").unwrap_or(0.5),
        };
        for domain in &read.domains {
            if !DOMAINS.contains(&domain.as_str()) {
                let known = DOMAINS.join(", ");
                let message = format!("has `{domain}`; expected some of {known}");
                route.mistake("domains", &message);
            }
        }
        if read.domains.is_empty() && read.exemplars.is_empty() {
            route.mistake("domains", "is missing, and so is `exemplars`: expected one");
        }
        if read.models.is_empty() {
            route.mistake("models", "is missing; expected at least one target");
        }
        if routes.iter().any(|earlier| earlier.name == read.name) {
            let message = format!("is `{}`, the name of an earlier route", read.name);
            route.mistake("name", &message);
        }
        route.finish();
        routes.push(read);
    }
    let read = Semantic {
        routes,
        default: listed(&mut section, "default"),
        confidence: fraction(&mut section, "confidence").unwrap_or(0.35),
    };
    section.finish();
    read
}

fn cost(mut section: Section) -> Cost {
    let both = section.contains("mode") && section.contains("give");
    if both {
        section.mistake("give", "is there beside `mode`: expected one of the two");
    }
    let given = fraction(&mut section, "give");
    let mode = section.optional(
        "mode",
        "quality, balanced or economy",
        |value| match as_text(value)?.as_str() {
            "quality" => Some(0.02),
            "balanced" => Some(0.10),
            "economy" => Some(0.20),
            _ => None,
        },
    );
    section.finish();
    let give = given.or(mode);
    give.map_or_else(Cost::default, |give| Cost { give })
}

fn tiered(mut section: Section) -> Tiered {
    let default = Tiered::default();
    let cuts = section.optional(
        "cuts",
        "three numbers from 0 to 1, each above the one before, e.g. [0.2, 0.3, 0.65]",
        |value| {
            let Value::List(items) = value else {
                return None;
            };
            let cuts: Option<Vec<f32>> =
                items.iter().map(|item| as_fraction(&item.value)).collect();
            let cuts: [f32; 3] = cuts?.try_into().ok()?;
            cuts.is_sorted_by(|a, b| a < b).then_some(cuts)
        },
    );
    let floor = |section: &mut Section, key: &str| {
        section.optional(key, "a quality tier from 1 to 4", as_quality_tier)
    };
    let read = Tiered {
        cuts: cuts.unwrap_or(default.cuts),
        tools_floor: floor(&mut section, "tools_floor").unwrap_or(default.tools_floor),
        context_floor: floor(&mut section, "context_floor").unwrap_or(default.context_floor),
        context_tokens: section
            .integer("context_tokens", "a number of tokens")
            .unwrap_or(default.context_tokens),
    };
    section.finish();
    read
}

fn turn(mut section: Section) -> Turn {
    let default = Turn::default();
    let ttl = section.optional(
        "ttl_seconds",
        "a number of seconds from 1 to 86400",
        |value| as_integer::<u64>(value).filter(|seconds| (1..=86_400).contains(seconds)),
    );
    let sessions = section.optional("sessions", "a number from 1 to 10000000", |value| {
        as_integer::<usize>(value).filter(|number| (1..=10_000_000).contains(number))
    });
    let read = Turn {
        lambda: fraction(&mut section, "lambda").unwrap_or(default.lambda),
        hysteresis: fraction(&mut section, "hysteresis").unwrap_or(default.hysteresis),
        ttl: ttl.map_or(default.ttl, Duration::from_secs),
        sessions: sessions.unwrap_or(default.sessions),
    };
    section.finish();
    read
}

pub(super) fn as_quality_tier(value: &Value) -> Option<u8> {
    as_integer(value).filter(|tier| (1..=4).contains(tier))
}
