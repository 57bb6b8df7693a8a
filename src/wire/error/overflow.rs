//! The words for a conversation that is too long. Clients of the Messages API shorten it, or lower `max_tokens`, if they
//! recognise them.

use super::UpstreamError;

/// The message for a request that a provider refused because of its length. The numbers are the provider's; where it
/// gives none, there are none.
pub(super) fn message(error: &UpstreamError) -> String {
    let text = match error {
        UpstreamError::Status {
            reason: Some(reason),
            ..
        } => reason.as_str(),
        _ => "",
    };
    let numbers = numbers(text);
    if let Some((input, output, most)) = with_output(text, &numbers) {
        return budget_too_large(input, output, most);
    }
    match prompt_alone(text, &numbers) {
        Some((sent, most)) => prompt_too_long(sent, most),
        None => "prompt is too long: it exceeds the model's maximum context length".to_owned(),
    }
}

/// The message for a request that no target of a hybrid can hold, with the gateway's estimate of the input.
pub(super) fn estimated(input: u64, output: u64, most: u64) -> String {
    if input > most {
        prompt_too_long(input, most)
    } else {
        budget_too_large(input, output, most)
    }
}

fn prompt_too_long(input: u64, most: u64) -> String {
    format!("prompt is too long: {input} tokens > {most} maximum")
}

fn budget_too_large(input: u64, output: u64, most: u64) -> String {
    format!(
        "input length and `max_tokens` exceed context limit: {input} + {output} > {most}. Lower max_tokens, or shorten \
         the conversation."
    )
}

/// Input, output and limit, if the three numbers are there: two of them add up to more than the third.
fn with_output(text: &str, numbers: &[u64]) -> Option<(u64, u64, u64)> {
    let text = text.to_lowercase();
    let splits = [
        "in the completion",
        "in the output",
        "output tokens",
        "`max_tokens`",
        "max_tokens",
    ];
    if !splits.iter().any(|word| text.contains(word)) {
        return None;
    }
    match *numbers {
        // "The limit is 4096 tokens. However, you requested 5000 tokens (904 in the messages, 4096 in the completion)."
        [most, sum, input, output, ..] if input.checked_add(output)? == sum && sum > most => {
            Some((input, output, most))
        }
        // "… exceed context limit: 190000 + 20000 > 200000."
        [input, output, most, ..] if input.checked_add(output)? > most => {
            Some((input, output, most))
        }
        _ => None,
    }
}

/// The length of the prompt and the limit: the first two numbers, the smaller of which is the limit.
fn prompt_alone(text: &str, numbers: &[u64]) -> Option<(u64, u64)> {
    let is_about_tokens = text.to_lowercase().contains("token");
    let (one, other) = (*numbers.first()?, *numbers.get(1)?);
    (is_about_tokens && one != other).then_some((one.max(other), one.min(other)))
}

/// The whole numbers in a text that can be numbers of tokens; `1,000` is one number.
fn numbers(text: &str) -> Vec<u64> {
    let text = text.replace(',', "");
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let words = words.map(|word| word.trim_matches('.'));
    words
        .filter_map(|word| word.parse().ok())
        .filter(|number| *number >= 16)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(reason: &str) -> String {
        message(&UpstreamError::Status {
            status: 400,
            reason: Some(reason.to_owned()),
            retry_after: None,
            about_us: false,
        })
    }

    #[test]
    fn the_providers_numbers_are_kept() {
        for (reason, expected) in [
            (
                "This model's maximum context length is 128000 tokens. However, your messages resulted in 130,001 tokens.",
                "prompt is too long: 130001 tokens > 128000 maximum",
            ),
            (
                "The model's maximum context length is exceeded: prompt is too long: 210000 tokens > 200000 maximum",
                "prompt is too long: 210000 tokens > 200000 maximum",
            ),
            (
                "This model's maximum context length is exceeded.",
                "prompt is too long: it exceeds the model's maximum context length",
            ),
        ] {
            assert_eq!(words(reason), expected);
        }
    }

    #[test]
    fn a_budget_that_is_too_large_has_words_of_its_own() {
        let expected = "input length and `max_tokens` exceed context limit: 904 + 4096 > 4096.";
        let reason = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (904 in \
                      the messages, 4096 in the completion).";
        assert!(words(reason).starts_with(expected), "{}", words(reason));
        let expected =
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000.";
        let reason = "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000";
        assert!(words(reason).starts_with(expected), "{}", words(reason));
    }
}
