//! The views for operators have what the ledger has.

use super::*;

impl Paying {
    /// A column of this account's row in a view.
    fn in_view(&self, view: &str, column: &str) -> String {
        self.sql(&format!(
            "SELECT {column} FROM {view} WHERE account_id = '{}'",
            self.account_id
        ))
    }

    /// The balance after the last entry of the view `ledger`.
    fn last_balance(&self) -> i64 {
        let balances = "(array_agg(balance_after_nano_usd ORDER BY seq DESC))[1]";
        self.in_view("ledger", balances).parse().unwrap()
    }

    async fn assert_views(&self) {
        self.assert_sound().await;
        let balances = self.ledger.balances(&self.account_id).await.unwrap();
        let shown = self.in_view(
            "balances",
            "balance_nano_usd || ' ' || held_nano_usd || ' ' || available_nano_usd",
        );
        let [balance, held, available] =
            [balances.balance, balances.held, balances.available].map(NanoUsd::nanos);
        assert_eq!(shown, format!("{balance} {held} {available}"));
        assert_eq!(self.last_balance(), balance);
        let sum: i64 = self
            .in_view("ledger", "sum(delta_nano_usd)")
            .parse()
            .unwrap();
        assert_eq!(sum, balance);
    }
}

/// Grants, expiries, charges, debt, reversals and holds.
#[tokio::test]
async fn the_views_of_balances_have_what_the_ledger_has() {
    let paying = with(100).await;
    paying.assert_views().await;
    paying.give(50, Some(paying.now() + 10)).await;
    let mut first = paying.hold(30, 60, 1_000).await.unwrap();
    let _running = paying.hold(20, 20, 0).await.unwrap();
    paying.assert_views().await;
    paying.advance(20);
    let call = charge(&mut first, 55).await.unwrap();
    paying.assert_views().await;
    let mut beyond = paying.hold(50, 500, 1_000).await.unwrap();
    charge(&mut beyond, 300).await.unwrap();
    assert!(paying.balance().await < 0);
    paying.assert_views().await;
    paying.reverse(&call).await;
    paying.assert_views().await;
    paying.give(DOLLAR, None).await;
    paying.assert_views().await;
    assert_eq!(
        paying.in_view("held_now", "calls || ' ' || held_nano_usd"),
        "1 20"
    );
}

/// A reversal also corrects the margin, and the charge keeps its place in the ledger.
#[tokio::test]
async fn a_reversal_is_in_the_view_and_in_the_sums() {
    let paying = with(DOLLAR).await;
    let mut held = paying.hold(COST, COST, 0).await.unwrap();
    held.add_provider_cost(NanoUsd::new(9).into());
    let call = charge(&mut held, COST).await.unwrap();
    paying.pay().await.unwrap();
    let margin = "charged_calls || ' ' || charged_nano_usd || ' ' || costed_calls || ' '
        || provider_cost_nano_usd || ' ' || margin_nano_usd";
    let margin = format!("SELECT {margin} FROM margin_by_model");
    let before = format!("2 {} 1 9 {}", 2 * COST, COST - 9);
    assert_eq!(paying.sql(&margin), before);
    paying.reverse(&call).await;
    assert_eq!(paying.sql(&margin), format!("1 {COST} 1 9 -9"));
    assert_eq!(
        paying.entries(),
        format!("grant {DOLLAR}, charge -{COST}, charge -{COST}, reversal {COST}")
    );
    let references = paying.in_view("ledger", "count(DISTINCT ref) || ' ' || count(*)");
    assert_eq!(references, "3 4");
    let of_charge =
        "SELECT string_agg(ref, ' ' ORDER BY seq) FROM ledger_entries WHERE kind <> 'grant'";
    assert_eq!(paying.sql(of_charge), format!("{0} {0}", call.id.0));
    paying.assert_views().await;
}
