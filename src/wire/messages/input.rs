//! The input of a tool call, which this API writes as an object.

use serde_json::value::RawValue;

/// Converts arguments from JSON text to an object. Text that is not a JSON object, which models do write, is wrapped in
/// one.
pub(crate) fn object(arguments: &str) -> Box<RawValue> {
    let object = serde_json::from_str::<Box<RawValue>>(arguments).ok();
    if let Some(object) = object.filter(|json| json.get().starts_with('{')) {
        return object;
    }
    let wrapped = if arguments.trim().is_empty() {
        serde_json::json!({})
    } else {
        serde_json::json!({ "arguments": arguments })
    };
    serde_json::value::to_raw_value(&wrapped).expect("an object of text serialises")
}
