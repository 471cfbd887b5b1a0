//! Which far host a worker logs in to, and which next where that one cannot be reached.

use super::names::number_of;

/// The far hosts, by their numbers, in the order in which the worker of this name tries them. It is
/// the same each time, and as workers are numbered from 1, as many begin at each host as at any
/// other, one more at most; those of a host that is lost divide among the others.
pub fn order(worker: &str, hosts: usize) -> Vec<usize> {
    if hosts == 0 {
        return Vec::new();
    }
    // Workers are numbered from 1, elements of an array in Slurm from 0.
    let number = (number_of(worker) % NUMBERS) as usize + hosts - 1;
    let first = number % hosts;
    let mut others: Vec<usize> = (1..hosts).map(|step| (first + step) % hosts).collect();
    if !others.is_empty() {
        let turn = (number / hosts) % others.len();
        others.rotate_left(turn);
    }
    [vec![first], others].concat()
}

/// More than there are workers.
const NUMBERS: u64 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    /// From 1 on, or as elements of an array.
    fn workers(first: usize, count: usize) -> impl Iterator<Item = String> {
        (first..first + count).map(|number| format!("slurm-{number}"))
    }

    #[test]
    fn every_host_is_tried_once() {
        for hosts in 0..7 {
            for name in
                workers(0, 30).chain(["worker", "", "w99999999999999999999999"].map(String::from))
            {
                let mut order = order(&name, hosts);
                order.sort_unstable();
                assert_eq!(order, (0..hosts).collect::<Vec<_>>(), "{name}");
            }
        }
    }

    /// At the first host, and where each one of them is lost, no host has two more than another
    /// for each of the others.
    #[test]
    fn hosts_have_as_many_workers_as_others() {
        let spread = |places: Vec<usize>, hosts: &[usize]| {
            let count = |host: &usize| places.iter().filter(|place| *place == host).count();
            let counts: Vec<usize> = hosts.iter().map(count).collect();
            counts.iter().max().unwrap() - counts.iter().min().unwrap()
        };
        for hosts in 1..6 {
            let all: Vec<usize> = (0..hosts).collect();
            for (count, from) in (1..40).flat_map(|count| [(count, 0), (count, 1)]) {
                let orders = workers(from, count).map(|worker| order(&worker, hosts));
                let orders: Vec<Vec<usize>> = orders.collect();
                let first = orders.iter().map(|order| order[0]).collect();
                assert!(spread(first, &all) <= 1, "{count} workers to {hosts} hosts");
                for lost in 0..hosts {
                    let left: Vec<usize> = all.iter().copied().filter(|h| *h != lost).collect();
                    if left.is_empty() {
                        continue;
                    }
                    let next = |order: &Vec<usize>| *order.iter().find(|h| **h != lost).unwrap();
                    let places = orders.iter().map(next).collect();
                    assert!(spread(places, &left) <= 2, "{count} to {hosts} without {lost}");
                }
            }
        }
    }
}
