//! Gateways that start at the same moment on an empty database.

use crate::{
    gateways::{Fleet, Stores, eventually},
    support::stores::connect,
};

async fn tables(stores: &Stores) -> Vec<String> {
    let sql = "SELECT table_schema || '.' || table_name FROM information_schema.tables \
        WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1";
    let rows = connect(&stores.postgres).await.query(sql, &[]).await;
    rows.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_gateways_start_at_once_and_create_the_tables_once() {
    let (alone, crowd) = (Stores::new(), Stores::new());
    let one = Fleet::on(alone.clone(), 1).await;
    let ten = Fleet::on(crowd.clone(), 10).await;
    // The portal's tables are created in the background.
    let has = |made: &[String], table| made.iter().any(|known| known == table);
    eventually("one has made the tables of the portal", async || {
        has(&tables(&alone).await, "public.backoffice_people")
    })
    .await;
    let made = tables(&alone).await;
    assert!(has(&made, "public.accounts"), "{made:?}");
    eventually("ten have made what one has", async || {
        tables(&crowd).await == made
    })
    .await;
    let account = ten.account("1").await;
    for at in 0..10 {
        ten.ask(at, &account).await.assert_answered();
    }
    ten.until_charged(3, &account, 10, 0).await;
    one.ends_clean().await;
    ten.ends_clean().await;
}
