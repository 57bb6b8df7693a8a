//! What `tollgate init` asks at a terminal.

use std::io::{self, Write as _};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use super::{
    Options, Setup, price,
    providers::{self, PRESETS},
    text::OWN_PRICES,
    without_repeats,
};

/// Asks for what the options do not say.
pub(super) fn ask(options: &Options) -> Result<Setup, String> {
    say("Who serves the models?\n")?;
    for (at, preset) in PRESETS.iter().enumerate() {
        say(&format!(
            "  {:>2}  {:<12} {}\n",
            at + 1,
            preset.name,
            preset.title
        ))?;
    }
    let preset = loop {
        let answer = question("Provider, by number or name", "openai")?;
        let numbered = answer
            .parse()
            .ok()
            .and_then(|at: usize| PRESETS.get(at.checked_sub(1)?));
        match numbered.or_else(|| providers::find(&answer)) {
            Some(preset) => break preset,
            None => say("There is no such provider.\n")?,
        }
    };
    let base_url = match options
        .base_url
        .clone()
        .or(preset.base_url.map(str::to_owned))
    {
        None if preset.kind != "simulator" => Some(required(
            "The URL of its API, e.g. http://10.0.0.7:8000/v1",
        )?),
        url => url,
    };
    let key = match (preset.key_variable, super::key_of_environment(preset)) {
        (Some(variable), Some(key)) => {
            say(&format!("The key is taken from {variable}.\n"))?;
            Some(key)
        }
        (Some(_), None) => Some(hidden(
            "Its API key, which is not shown (empty to add it later)",
        )?),
        (None, _) => None,
    };
    let mut models = options.models.clone();
    while models.is_empty() {
        let usual = preset.models.join(", ");
        let answer = match usual.as_str() {
            "" => required("Its models, separated by commas, e.g. llama3.2")?,
            usual => question("Models, separated by commas", usual)?,
        };
        models = answer
            .split(',')
            .map(|model| model.trim().to_owned())
            .collect();
        models.retain(|model| !model.is_empty());
    }
    let models = without_repeats(models);
    let mut setup = Setup {
        preset,
        base_url,
        key,
        models,
        margin: options.margin.clone(),
        prices: [options.input_price.clone(), options.output_price.clone()],
        listen: options.listen.clone(),
    };
    let unlisted = setup.unlisted().join(", ");
    if !unlisted.is_empty() {
        say(&format!(
            "Your price of {unlisted}, in US dollars per million tokens:\n"
        ))?;
        // What a provider with a key asks is not known, and a guess could lose money.
        let usual = if setup.has_key() { [""; 2] } else { OWN_PRICES };
        for ((what, given), usual) in ["Input", "Output"]
            .into_iter()
            .zip(&mut setup.prices)
            .zip(usual)
        {
            *given = Some(price_of(what, given.as_deref().unwrap_or(usual))?);
        }
    }
    Ok(setup)
}

fn price_of(what: &str, default: &str) -> Result<String, String> {
    loop {
        match price(&question(what, default)?) {
            Ok(price) => return Ok(price),
            Err(mistake) => say(&format!("{mistake}\n"))?,
        }
    }
}

/// Asks for a secret, which the terminal does not show.
fn hidden(text: &str) -> Result<String, String> {
    let before = tcgetattr(io::stdin()).ok();
    let set = |modes: &Termios| tcsetattr(io::stdin(), OptionalActions::Now, modes);
    let silent = before.clone().map(|mut modes| {
        modes.local_modes.remove(LocalModes::ECHO);
        modes
    });
    // A terminal that cannot do this shows the key.
    let is_silent = silent.is_some_and(|modes| set(&modes).is_ok());
    let answer = question(text, "");
    if let Some(before) = before.filter(|_| is_silent) {
        let restored = set(&before);
        restored.map_err(|error| format!("the terminal stays silent: {error}"))?;
        say("\n")?;
    }
    answer
}

fn required(text: &str) -> Result<String, String> {
    loop {
        let answer = question(text, "")?;
        if !answer.is_empty() {
            return Ok(answer);
        }
    }
}

/// Asks, and returns the answer or the default.
fn question(text: &str, default: &str) -> Result<String, String> {
    match default {
        "" => say(&format!("{text}: "))?,
        default => say(&format!("{text} [{default}]: "))?,
    }
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    match read.map_err(|error| format!("the answer cannot be read: {error}"))? {
        0 => Err("stopped; nothing was written".into()),
        _ => Ok(match answer.trim() {
            "" => default.to_owned(),
            answer => answer.to_owned(),
        }),
    }
}

/// Questions go to standard error, as results go to standard output.
fn say(text: &str) -> Result<(), String> {
    let mut terminal = io::stderr();
    let written = write!(terminal, "{text}").and_then(|()| terminal.flush());
    written.map_err(|error| format!("the question cannot be shown: {error}"))
}
