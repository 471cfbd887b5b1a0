//! Old experiments are thinned or removed.

use rusqlite::{Connection, TransactionBehavior};

use super::Store;
use base::fault::Fault;

impl Store {
    /// Removes the samples and series of an experiment's runs; the runs stay.
    pub fn thin(&mut self, experiment: &str) -> Result<(), Fault> {
        let done = carry_out(
            &mut self.connection,
            experiment,
            &[
                "DELETE FROM paths WHERE run IN (SELECT id FROM runs WHERE experiment = ?)",
                "DELETE FROM series WHERE run IN (SELECT id FROM runs WHERE experiment = ?)",
            ],
        );
        self.told("write to", done)
    }

    /// Removes an experiment with its runs.
    pub fn remove(&mut self, experiment: &str) -> Result<(), Fault> {
        let done = carry_out(
            &mut self.connection,
            experiment,
            &["DELETE FROM runs WHERE experiment = ?", "DELETE FROM experiments WHERE name = ?"],
        );
        self.told("write to", done)
    }
}

/// All of it or nothing.
fn carry_out(
    connection: &mut Connection,
    experiment: &str,
    statements: &[&str],
) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for statement in statements {
        transaction.execute(statement, [experiment])?;
    }
    transaction.commit()
}
