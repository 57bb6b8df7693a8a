//! A catalog file of the operator: in addition to the built-in one, or in place of it.

use std::collections::BTreeMap;

use tempfile::TempDir;
use tollgate::config::Config;

/// Reads a configuration whose catalog file contains `catalog`.
fn with_catalog(catalog: &str, extends: bool) -> Result<Config, String> {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("catalog.toml");
    std::fs::write(&file, catalog).unwrap();
    let path = file.display();
    let text = format!(
        "catalog = {{ file = \"{path}\", extends = {extends} }}\n\
         deployments = [{{ model = \"*\", provider = \"play\" }}]\n\
         providers.play.kind = \"simulator\"\n"
    );
    let token = (
        "TOLLGATE_OPERATOR_TOKEN".to_owned(),
        "7c1f9a04e6b25d83d0487ae1936bf25c".to_owned(),
    );
    let config = Config::parse("tollgate.toml", &text, &BTreeMap::from([token]));
    config.map_err(|error| {
        error
            .to_string()
            .replace(file.to_str().unwrap(), "catalog.toml")
    })
}

const OWN: &str = r#"
[[models]]
id = "own-model"
name = "Own"
input = "1.00"
output = "2.00"
min_tier = "pro"
max_output = 1000
drops = ["seed"]
"#;

#[test]
fn a_file_extends_the_built_in_models() {
    let config = with_catalog(OWN, true).unwrap();
    assert_eq!(config.catalog.models().count(), 18);
    let own = config.catalog.find("own-model").unwrap();
    assert_eq!(own.prices.rates.output.to_string(), "0.000002");
    assert_eq!((own.max_output, own.context_length), (1_000, 1_050_000));
    assert!(config.catalog.find("svc-pro").is_some());
    let basic = config.catalog.find("svc-basic").unwrap();
    let identity = config.catalog.identity_prompt(basic);
    assert!(
        identity.unwrap().contains("Basic"),
        "the identity prompt is taken over"
    );
}

#[test]
fn a_model_with_a_known_id_replaces_it() {
    let config = with_catalog(&OWN.replace("own-model", "svc-pro"), true).unwrap();
    assert_eq!(config.catalog.models().count(), 17);
    let pro = config.catalog.find("svc-pro").unwrap();
    assert_eq!(pro.prices.rates.input.to_string(), "0.000001");
    assert_eq!(pro.max_output, 1_000);
}

/// A hybrid shows the price of its most expensive target as configured now, not as in the built-in catalog.
#[test]
fn a_hybrid_follows_its_targets_new_price() {
    for (input, shown) in [("1.00", "0.000002"), ("7.00", "0.000007")] {
        let cheaper = format!(
            "[[models]]\nid = \"svc-basic\"\ninput = \"{input}\"\noutput = \"40.00\"\ncached_input = \"0.10\"\n"
        );
        let config = with_catalog(&cheaper, true).unwrap();
        let tiered = config.catalog.find("svc-hybrid-tiered").unwrap();
        assert_eq!(
            tiered.prices.rates.input.to_string(),
            shown,
            "svc-standard or svc-basic"
        );
        assert_eq!(tiered.prices.rates.output.to_string(), "0.00004");
    }
}

#[test]
fn a_file_that_does_not_extend_stands_alone() {
    let config = with_catalog(OWN, false).unwrap();
    let ids: Vec<_> = config
        .catalog
        .models()
        .map(|model| model.id.clone())
        .collect();
    assert_eq!(ids, ["own-model"]);
    let error = with_catalog("", false).unwrap_err();
    assert!(error.contains("`models` is missing"), "{error}");
    assert_eq!(with_catalog("", true).unwrap().catalog.models().count(), 17);
}

#[test]
fn every_mistake_in_a_catalog_is_reported() {
    let catalog = r#"
        [[models]]
        id = "a"
        output = "free"
        min_tier = "gold"
        drops = ["temperature", "hope"]
        [[models]]
        name = "Nameless"
        input = "1"
        output = "1"
        max_outputs = 2
        [[models]]
        id = "b"
        input = "0"
        output = "1"
        min_output = 70_000
        context_length = 0
        [[models]]
        id = "h"
        targets = ["b", "nope"]
        [[models]]
        id = "b"
        input = "0"
        output = "1"
    "#;
    insta::assert_snapshot!(with_catalog(catalog, false).err().unwrap(), @r#"
    tollgate.toml cannot be used: 10 mistakes
    - line 1: `catalog.file` (catalog.toml) line 4: `models[0].output` is "free"; expected US dollars per million tokens as a text, e.g. "2.00"
    - line 1: `catalog.file` (catalog.toml) line 5: `models[0].min_tier` is "gold"; expected free, basic, standard, pro, max or flex
    - line 1: `catalog.file` (catalog.toml) line 6: `models[0].drops` is a list; expected a list of temperature, top_p, top_k, stop, seed, frequency_penalty, presence_penalty, logit_bias, logprobs, top_logprobs, max_tokens
    - line 1: `catalog.file` (catalog.toml) line 2: `models[0].input` is missing; expected a price, e.g. "9.00"
    - line 1: `catalog.file` (catalog.toml) line 7: `models[1].id` is missing; expected the model's ID
    - line 1: `catalog.file` (catalog.toml) line 11: `models[1].max_outputs` is not a setting; did you mean `max_output`?
    - line 1: `catalog.file` (catalog.toml) line 17: `models[2].context_length` is 0; expected a number of tokens above zero
    - line 1: `catalog.file` (catalog.toml) line 12: `models[2].min_output` is above `max_output`
    - line 1: `catalog.file` (catalog.toml) `models` has two models `b`
    - line 1: `catalog.file` (catalog.toml) `models` `h` has the target `nope`, which is no plain model of this catalog
    "#);
}

#[test]
fn a_price_is_required_and_may_be_zero() {
    let model = |prices: &str| format!("[[models]]\nid = \"own\"\n{prices}");
    for (prices, missing) in [("output = \"1\"", "input"), ("input = \"1\"", "output")] {
        let error = with_catalog(&model(prices), true).unwrap_err();
        let expected = format!("`models[0].{missing}` is missing; expected a price");
        assert!(error.contains(&expected), "{error}");
        assert!(error.contains(": 1 mistake\n"), "{error}");
    }
    let free = with_catalog(&model("input = \"0\"\noutput = \"0\""), true).unwrap();
    let own = free.catalog.find("own").unwrap();
    assert_eq!(own.prices.rates.output.to_string(), "0");
}

#[test]
fn a_model_without_a_quality_is_ranked_by_its_price() {
    let model = |id: &str, input: &str, more: &str| {
        format!("[[models]]\nid = \"{id}\"\ninput = \"{input}\"\noutput = \"1\"\n{more}\n")
    };
    let catalog = [
        model("d", "4.00", ""),
        model("a", "1.00", ""),
        model("said", "9.00", "quality_tier = 1"),
        model("c", "3.00", ""),
    ];
    let config = with_catalog(&catalog.concat(), false).unwrap();
    let tier = |id: &str| config.catalog.find(id).unwrap().quality_tier;
    assert_eq!(["a", "c", "d", "said"].map(tier), [1, 2, 3, 1]);
}

#[test]
fn every_mistake_in_a_router_is_reported() {
    let catalog = r#"
        [[models]]
        id = "a"
        input = "1"
        output = "1"
        quality_tier = 5
        router = "cost"
        [[models]]
        id = "f"
        input = "1"
        output = "1"
        min_tier = "flex"
        [[models]]
        id = "kind"
        targets = ["f"]
        router = "luck"
        [[models]]
        id = "cost"
        targets = ["a"]
        router = "cost"
        cost = { mode = "free" }
        turn = { lambda = 1 }
        [[models]]
        id = "tiered"
        targets = ["a"]
        router = "tiered"
        tiered = { cuts = [0.4, 0.2, 0.5], tools_floor = 0, context_tokens = "many" }
        [[models]]
        id = "turn"
        targets = ["a"]
        router = "turn"
        turn = { lambda = 1.5, ttl_seconds = 0, sessions = 0, hysteresis = "none" }
        [[models]]
        id = "semantic"
        targets = ["a"]
        router = "semantic"
        [models.semantic]
        default = ["b"]
        [[models.semantic.routes]]
        name = "x"
        domains = ["alchemy"]
        models = ["a"]
        [[models.semantic.routes]]
        name = "x"
        threshold = 2.0
    "#;
    let error = with_catalog(catalog, false).err().unwrap();
    let error = error
        .replace("line 1: `catalog.file` (catalog.toml) ", "")
        .replace(&tollgate::catalog::DOMAINS.join(", "), "(the domains)");
    insta::assert_snapshot!(error, @r#"
    tollgate.toml cannot be used: 19 mistakes
    - line 6: `models[0].quality_tier` is 5; expected a number from 1 to 4
    - line 2: `models[0].router` is for hybrids, and there are no `targets`
    - line 16: `models[2].router` is "luck"; expected semantic, cost, tiered or turn
    - line 22: `models[3].turn` is for the router `turn`, and this one is `cost`
    - line 21: `models[3].cost.mode` is "free"; expected quality, balanced or economy
    - line 27: `models[4].tiered.cuts` is a list; expected three numbers from 0 to 1, each above the one before, e.g. [0.2, 0.3, 0.65]
    - line 27: `models[4].tiered.tools_floor` is 0; expected a quality tier from 1 to 4
    - line 27: `models[4].tiered.context_tokens` is "many"; expected a number of tokens
    - line 32: `models[5].turn.ttl_seconds` is 0; expected a number of seconds from 1 to 86400
    - line 32: `models[5].turn.sessions` is 0; expected a number from 1 to 10000000
    - line 32: `models[5].turn.lambda` is 1.5; expected a number from 0 to 1
    - line 32: `models[5].turn.hysteresis` is "none"; expected a number from 0 to 1
    - line 39: `models[6].semantic.routes[0].domains` has `alchemy`; expected some of (the domains)
    - line 45: `models[6].semantic.routes[1].threshold` is 2.0; expected a number from 0 to 1
    - line 43: `models[6].semantic.routes[1].domains` is missing, and so is `exemplars`: expected one
    - line 43: `models[6].semantic.routes[1].models` is missing; expected at least one target
    - line 43: `models[6].semantic.routes[1].name` is `x`, the name of an earlier route
    - line 37: `models[6].semantic.default` names `b`, which is no target
    - `models` `kind` is for `free`, and no target is below `flex`
    "#);
}

/// A calibration results in a number that no `mode` has.
#[test]
fn the_cost_weight_of_a_hybrid_can_be_a_number() {
    let with_cost = |cost: &str| {
        let hybrid = "[[models]]\nid = \"h\"\ntargets = [\"svc-native-fast\"]\nrouter = \"cost\"\n";
        with_catalog(&format!("{hybrid}cost = {{ {cost} }}\n"), true)
    };
    for (written, expected) in [
        ("give = 0.07", 0.07),
        ("give = 0", 0.0),
        ("mode = \"economy\"", 0.20),
        ("", 0.10),
    ] {
        let config = with_cost(written).unwrap();
        let router = config.catalog.find("h").unwrap().router.clone();
        let expected = tollgate::catalog::Cost { give: expected };
        assert_eq!(router, Some(tollgate::catalog::Router::Cost(expected)));
    }
    for (written, mistake) in [
        (
            "give = 0.07, mode = \"economy\"",
            "`models[0].cost.give` is there beside `mode`: expected one of the two",
        ),
        (
            "give = 1.2",
            "`models[0].cost.give` is 1.2; expected a number from 0 to 1",
        ),
    ] {
        let error = with_cost(written).unwrap_err();
        assert!(error.contains(mistake), "{error}");
        assert!(error.contains(": 1 mistake\n"), "{error}");
    }
}
