//! Costs checked against a table from an independent program (`tests/prices/make-table`), and as a property.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::catalog::Catalog;

/// The price lists that the table refers to.
fn lists() -> BTreeMap<&'static str, Prices> {
    let lists = [
        (
            "plain",
            r#"input = "2.00", output = "9.00", cached_input = "0.20""#,
        ),
        ("tiny", r#"input = "0.000001", output = "0.000003""#),
        ("free", r#"input = "0", output = "0""#),
        (
            "writes",
            r#"input = "3.00", output = "15.00", cached_input = "0.30", cache_write = "3.75", cache_write_1h = "6.00",
            above = [{ prompt_tokens = 200000, input = "6.00", output = "22.50", cached_input = "0.60",
                cache_write = "7.50", cache_write_1h = "12.00" }]"#,
        ),
        (
            "long",
            r#"input = "1.25", output = "10.00", cached_input = "0.125",
            above = [{ prompt_tokens = 200000, input = "2.50", output = "15.00" }]"#,
        ),
        (
            "fee",
            r#"input = "0.14", output = "0.28", request = "0.001""#,
        ),
        (
            "steps",
            // Not in ascending order, to test sorting.
            r#"input = "1.00", output = "2.000001", above = [
                { prompt_tokens = 1000, input = "0.50", output = "1.00" },
                { prompt_tokens = 100, input = "1.500001" }]"#,
        ),
    ];
    lists
        .map(|(name, prices)| (name, read(prices).unwrap()))
        .into()
}

/// Prices of a catalog model with these settings.
fn read(prices: &str) -> Result<Prices, String> {
    let catalog = Catalog::parse(&format!("models = [{{ id = \"m\", {prices} }}]"));
    let catalog = catalog.map_err(|mistakes| {
        let mistakes = mistakes.iter().map(ToString::to_string);
        mistakes.collect::<Vec<_>>().join("\n")
    })?;
    Ok((*catalog.find("m").unwrap().prices).clone())
}

#[test]
fn costs_equal_the_independent_table() {
    let lists = lists();
    let rows = include_str!("table.csv").lines().skip(1);
    let mut count = 0;
    for row in rows {
        let (list, numbers) = row.split_once(',').unwrap();
        let numbers: Vec<u64> = numbers
            .split(',')
            .map(|number| number.parse().unwrap())
            .collect();
        let [prompt, cached, written, hour, output, nanos] = numbers[..] else {
            panic!("{row}");
        };
        let cost = lists[list].cost(Billable {
            input: prompt - cached - written,
            cached_input: cached,
            cache_write: written - hour,
            cache_write_1h: hour,
            output,
        });
        assert_eq!(cost, NanoUsd::new(i64::try_from(nanos).unwrap()), "{row}");
        count += 1;
    }
    assert!(count >= 200, "{count}");
}

#[test]
fn stored_prices_are_restored() {
    for (name, prices) in lists() {
        let Rates {
            input,
            output,
            cached_input,
            ..
        } = prices.rates;
        let stored = prices.to_stored();
        assert_eq!(stored.is_none(), ["plain", "tiny", "free"].contains(&name));
        let again = Prices::from_stored((input, output, cached_input), stored.as_deref());
        assert_eq!(*again.unwrap(), prices, "{name}");
    }
    let three = Default::default();
    assert_eq!(Prices::from_stored(three, Some("{\"input\":1}")), None);
}

#[test]
fn a_mistake_in_prices_is_named() {
    for (prices, mistake) in [
        (
            r#"input = "1", output = "1", cache_write = 2"#,
            "`models[0].cache_write` is 2; expected US dollars per million tokens",
        ),
        (
            r#"input = "1", output = "1", request = "a cent""#,
            "`models[0].request` is \"a cent\"; expected US dollars as a text",
        ),
        (
            r#"input = "1", output = "1", above = [{ prompt_tokens = 0, input = "2" }]"#,
            "`models[0].above[0].prompt_tokens` is 0; expected a number of tokens above zero",
        ),
        (
            r#"input = "1", output = "1", above = [{ prompt_tokens = 5 }]"#,
            "`models[0].above[0].input` is missing; expected at least one price that changes",
        ),
        (
            r#"input = "1", output = "1", above = [{ prompt_tokens = 5, input = "2", request = "1" }]"#,
            "`models[0].above[0].request` is not a setting",
        ),
        (
            r#"input = "1", output = "1", above = [{ prompt_tokens = 5, input = "2" }, { prompt_tokens = 5, input = "3" }]"#,
            "`models[0].above` names the same `prompt_tokens` twice",
        ),
        (
            r#"input = "1", output = "1", above = 5"#,
            "`models[0].above` must be written as `[[above]]`",
        ),
        (
            r#"cache_write = "2""#,
            "`models[0].input` is missing; expected a price",
        ),
    ] {
        let found = read(prices).unwrap_err();
        assert!(found.contains(mistake), "{prices}: {found}");
    }
}

#[test]
fn input_output_and_fees_have_defaults_and_nothing_else_does() {
    let catalog = |defaults: &str, model: &str| {
        Catalog::parse(&format!(
            "defaults = {{ {defaults} }}\nmodels = [{{ id = \"m\", {model} }}]"
        ))
    };
    let prices = |defaults: &str, model: &str| {
        let catalog = catalog(defaults, model).unwrap();
        (*catalog.find("m").unwrap().prices).clone()
    };
    let defaults = r#"input = "2", output = "8", request = "0.01", cached_input = "0.1""#;
    let price = |text| TokenPrice::parse_per_million(text).unwrap();
    let inherited = prices(defaults, "");
    let expected = Prices {
        request: NanoUsd::parse("0.01").unwrap(),
        ..Prices::flat(price("2"), price("8"), price("2"))
    };
    assert_eq!(
        inherited, expected,
        "no discount that the model does not name"
    );
    let own = prices(defaults, r#"input = "3", cache_write = "4", request = "0""#);
    let mut expected = Prices::flat(price("3"), price("8"), price("3"));
    expected.rates.cache_write = price("4");
    assert_eq!(own, expected);
    for key in Prices::WITHOUT_DEFAULT {
        let mistakes =
            catalog(&format!("input = \"1\", output = \"1\", {key} = \"1\""), "").unwrap_err();
        let message = mistakes[0].to_string();
        assert!(
            message.contains(&format!("`defaults.{key}` belongs to a model")),
            "{message}"
        );
    }
}

fn rates() -> impl Strategy<Value = Rates> {
    let price =
        || prop_oneof![Just(0), 1_i64..10, 1_i64..60_000_000].prop_map(TokenPrice::from_picos);
    let five = (price(), price(), price(), price(), price());
    five.prop_map(
        |(input, output, cached_input, cache_write, cache_write_1h)| Rates {
            input,
            output,
            cached_input,
            cache_write,
            cache_write_1h,
        },
    )
}

fn prices() -> impl Strategy<Value = Prices> {
    let above = prop::collection::btree_map(1_u32..2_000, rates(), 0..4);
    let fee = prop_oneof![Just(0), 1_i64..1_000_000].prop_map(NanoUsd::new);
    (rates(), above, fee).prop_map(|(rates, above, request)| Prices {
        rates,
        above: above
            .into_iter()
            .map(|(prompt_tokens, rates)| Above {
                prompt_tokens,
                rates,
            })
            .collect(),
        request,
        image: NanoUsd::default(),
    })
}

/// A prompt size at one of the thresholds, one token off it, or anywhere.
fn prompt_near(prices: &Prices, choice: usize, offset: i64, anywhere: u64) -> u64 {
    match prices.above.get(choice) {
        Some(above) => u64::try_from(i64::from(above.prompt_tokens) + offset).unwrap(),
        None => anywhere,
    }
}

proptest! {
    /// Each token is charged once, at the rates of the highest threshold below the prompt size, and the cost never
    /// exceeds the worst case.
    #[test]
    fn a_response_costs_its_tokens_at_the_rates_of_its_prompt_size(
        prices in prices(), choice in 0_usize..6, offset in -1_i64..=1, anywhere in 0_u64..3_000,
        shares in prop::array::uniform3(0_u64..=100), output in 0_u64..5_000, more in (0_u64..500, 0_u64..500),
    ) {
        let prompt = prompt_near(&prices, choice, offset, anywhere);
        let cached_input = prompt * shares[0] / 100;
        let written = (prompt - cached_input) * shares[1] / 100;
        let cache_write_1h = written * shares[2] / 100;
        let tokens = Billable {
            input: prompt - cached_input - written,
            cached_input,
            cache_write: written - cache_write_1h,
            cache_write_1h,
            output,
        };
        let mut rates = prices.rates;
        for above in &prices.above {
            if prompt > u64::from(above.prompt_tokens) {
                rates = above.rates;
            }
        }
        let picos = |tokens: u64, price: TokenPrice| i128::from(tokens) * i128::from(price.picos());
        let exact = picos(tokens.input, rates.input)
            + picos(cached_input, rates.cached_input)
            + picos(tokens.cache_write, rates.cache_write)
            + picos(cache_write_1h, rates.cache_write_1h)
            + picos(output, rates.output)
            + i128::from(prices.request.nanos()) * 1_000;
        let cost = prices.cost(tokens);
        prop_assert_eq!(i128::from(cost.nanos()), (exact + 999) / 1_000);
        let worst = prices.worst_case(prompt + more.0, output + more.1);
        prop_assert!(cost <= worst, "{cost} is more than {worst}");
        // A hybrid's prices are never below its targets' prices.
        let higher = prices.max(&Prices { rates, ..Prices::default() });
        prop_assert!(cost <= higher.worst_case(prompt, output));
    }
}

/// Compares the table in docs/MODELS.md with the catalog, row by row.
#[test]
fn the_documented_models_are_those_of_the_catalog() {
    let document = include_str!("../../../docs/MODELS.md");
    let rows: Vec<Vec<&str>> = document
        .lines()
        .filter(|line| line.starts_with("| `svc-"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let catalog = Catalog::built_in();
    assert_eq!(rows.len(), catalog.models().count());
    for (row, model) in rows.iter().zip(catalog.models()) {
        let number = |text: &str| text.replace(',', "").parse::<u32>().ok();
        let [id, tier, input, output, cached, context, most, least] = row[..] else {
            panic!("{row:?}");
        };
        assert_eq!(id, format!("`{}`", model.id));
        assert_eq!(tier, model.min_tier.as_str(), "{id}");
        assert_eq!(number(context), Some(model.context_length), "{id}");
        assert_eq!(number(most), Some(model.max_output), "{id}");
        assert_eq!(number(least), model.min_output, "{id}");
        let rates = model.prices.rates;
        let written = [input, output, cached].map(TokenPrice::parse_per_million);
        let [input, output, cached] = [rates.input, rates.output, rates.cached_input].map(Some);
        if model.is_hybrid() {
            assert_eq!(written, [None; 3], "{id}");
        } else {
            assert_eq!(written, [input, output, cached], "{id}");
            assert_eq!(model.prices.to_stored(), None, "{id}");
        }
    }
}
