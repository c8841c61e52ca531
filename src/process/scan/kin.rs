//! Decides who descends from whom, in a list of processes.

use nix::unistd::Pid;

use super::Process;

/// Whether a process is one of those sought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kin {
    /// Not decided.
    Unknown,
    /// It does.
    Yes,
    /// It does not.
    No,
    /// It cannot be told: the chain of parents leaves the list.
    Lost,
    /// It is not there any more.
    Gone,
}

/// Decides every unknown entry of `table` (sorted by pid) by its chain of parents: it gets the verdict of the next decided one.
/// With a `root`, its descendants are kin, but not itself; without one, chains that leave the table are not kin.
pub(super) fn trace(table: &[Process], kin: &mut [Kin], root: Option<Pid>) {
    let root_start = root.and_then(|root| table.get(index(table, root)?)).map_or(0, |root| root.start);
    for first in 0..table.len() {
        let (verdict, last) = follow(table, kin, first, root, root_start);
        let mut at = Some(first);
        while let Some(index_of_one) = at
            && let Some(one) = kin.get_mut(index_of_one)
            && *one == Kin::Unknown
        {
            *one = verdict;
            at = table.get(index_of_one).filter(|_| index_of_one != last).and_then(|process| index(table, process.parent));
        }
    }
}

/// The verdict for `first`, and the last process of its chain to which it applies.
fn follow(table: &[Process], kin: &[Kin], first: usize, root: Option<Pid>, root_start: u64) -> (Kin, usize) {
    let mut at = first;
    // A chain longer than the table is a loop made of recycled pids.
    for _ in 0..=table.len() {
        let (Some(process), Some(known)) = (table.get(at), kin.get(at)) else { break };
        if *known != Kin::Unknown {
            return (*known, at);
        }
        // The top, or older than the root and so not its child.
        if process.parent.as_raw() == 0 || Some(process.pid) == root || process.start < root_start {
            return (Kin::No, at);
        }
        if Some(process.parent) == root {
            return (Kin::Yes, at);
        }
        match index(table, process.parent) {
            Some(parent) => at = parent,
            None => break,
        }
    }
    (Kin::Lost, at)
}

fn index(table: &[Process], pid: Pid) -> Option<usize> {
    table.binary_search_by_key(&pid, |process| process.pid).ok()
}

#[cfg(test)]
mod tests {
    use super::{super::UNREADABLE, *};

    /// Processes as (pid, parent, start).
    fn kin(processes: &[(i32, i32, u64)], root: Option<i32>) -> Vec<Kin> {
        let process =
            |&(own, parent, start)| Process { pid: Pid::from_raw(own), parent: Pid::from_raw(parent), start, ..UNREADABLE };
        let table: Vec<_> = processes.iter().map(process).collect();
        let mut kin = vec![Kin::Unknown; table.len()];
        trace(&table, &mut kin, root.map(Pid::from_raw));
        kin
    }

    #[test]
    fn descendants_are_found_by_the_chain_of_parents_in_any_order_of_pids() {
        let processes = [(1, 0, 1), (5, 9, 7), (6, 1, 2), (7, 6, 5), (8, 12, 8), (9, 7, 6), (12, 9, 8), (20, 6, 9), (21, 0, 9)];
        let (yes, no) = (Kin::Yes, Kin::No);
        assert_eq!(kin(&processes, Some(7)), [no, yes, no, no, yes, yes, yes, no, no]);
    }

    #[test]
    fn a_chain_that_leaves_the_table_is_lost_unless_older_than_init() {
        let processes = [(1, 0, 1), (7, 1, 5), (8, 99, 6), (9, 8, 6), (10, 99, 4)];
        assert_eq!(kin(&processes, Some(7)), [Kin::No, Kin::No, Kin::Lost, Kin::Lost, Kin::No]);
    }

    #[test]
    fn a_loop_of_recycled_pids_ends() {
        assert_eq!(kin(&[(7, 1, 5), (8, 9, 6), (9, 8, 6)], Some(7)), [Kin::No, Kin::Lost, Kin::Lost]);
    }
}
