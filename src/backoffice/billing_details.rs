//! What a customer wants to read on receipts and statements: name and address, as lines of text.

use super::{Backoffice, BackofficeError, sql::statement};

impl Backoffice {
    /// The customer's name and address, in lines; empty if there are none.
    pub(crate) async fn bill_to(&self, account_id: &str) -> Result<String, BackofficeError> {
        let select = statement(
            "SELECT bill_to FROM backoffice_billing_details WHERE account_id = $1",
            [account_id.into()],
        );
        let rows = self.run(vec![select]).await?;
        let row = rows.into_iter().next();
        row.map_or(Ok(String::new()), |mut row| row.text())
    }

    pub(crate) async fn set_bill_to(
        &self,
        account_id: &str,
        bill_to: &str,
        now: i64,
    ) -> Result<(), BackofficeError> {
        let set = statement(
            "INSERT INTO backoffice_billing_details (account_id, bill_to, changed_at) VALUES ($1, $2, $3)
             ON CONFLICT (account_id) DO UPDATE SET bill_to = excluded.bill_to, changed_at = excluded.changed_at",
            [account_id.into(), bill_to.into(), now.into()],
        );
        self.run(vec![set]).await?;
        Ok(())
    }
}
