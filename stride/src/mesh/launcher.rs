//! The launcher that has started this process, and what its variables state: the rank, the number of ranks, the job,
//! and where rank 0 is.

use super::rendezvous::{Rendezvous, derived};
use super::{MOST_RANKS, Rank};

/// The variable that `mesh --hosts` sets for the processes that it starts: rank, number of ranks, address and job.
pub const OWN: &str = "STRIDE_PERF_MESH";

/// The kind of launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `srun` of Slurm.
    Slurm,
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpiexec` of MPICH and its relatives.
    Hydra,
    /// An indexed job of Kubernetes.
    Kubernetes,
    /// `torchrun`, or variables of the same names.
    Torchrun,
    /// `stride-perf mesh --hosts`.
    Ssh,
}

impl Launcher {
    /// Returns the name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Slurm => "slurm",
            Self::OpenMpi => "open_mpi",
            Self::Hydra => "hydra",
            Self::Kubernetes => "kubernetes",
            Self::Torchrun => "torchrun",
            Self::Ssh => "ssh",
        }
    }
}

/// This process as a member of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// What has started the process.
    pub launcher: Launcher,
    /// Its rank.
    pub rank: Rank,
    /// The number of ranks.
    pub size: Rank,
    /// A text that all ranks of the job have, and no other job. Empty if the launcher provides none.
    pub job: String,
    /// Where the ranks meet, unless the user names a place. `None` if the launcher does not help.
    pub rendezvous: Option<Rendezvous>,
}

/// Returns the membership that the variables of a launcher describe, or `None` if no launcher has started the process.
/// `ranks` is the number of ranks that the user gave.
///
/// # Errors
///
/// Returns an error for the user if a variable is missing or invalid.
pub fn find(variable: impl Fn(&str) -> Option<String>, ranks: Option<Rank>) -> Result<Option<Membership>, String> {
    let variables = Variables(&variable);
    let found = if let Some(own) = variable(OWN) {
        Some(ssh(&own).ok_or_else(|| format!("{OWN} is {own:?}, which `mesh --hosts` has not set; unset it"))?)
    } else if variables.has("OMPI_COMM_WORLD_RANK") {
        Some(variables.open_mpi()?)
    } else if variables.has("PMI_RANK") && (variables.has("MPI_LOCALNRANKS") || !variables.has("SLURM_PROCID")) {
        Some(variables.hydra()?)
    } else if variables.has("RANK") && variables.has("WORLD_SIZE") && variables.has("MASTER_ADDR") {
        Some(variables.torchrun()?)
    } else if variables.has("SLURM_PROCID") {
        Some(variables.slurm()?)
    } else if variables.has("JOB_COMPLETION_INDEX") {
        Some(variables.kubernetes(ranks)?)
    } else {
        None
    };
    let Some(found) = found else { return Ok(None) };
    if let Some(ranks) = ranks.filter(|&ranks| ranks != found.size) {
        return Err(format!("--ranks is {ranks}, and the launcher counts {}; leave out --ranks", found.size));
    }
    if found.size < 2 {
        return Err("a mesh requires at least two ranks, and this job has one; start more, one per host".to_owned());
    }
    if found.size > MOST_RANKS || found.rank >= found.size {
        let (rank, size) = (found.rank, found.size);
        return Err(format!(
            "rank {rank} of {size} is invalid: a rank is below the number of ranks, at most {MOST_RANKS}"
        ));
    }
    Ok(Some(found))
}

struct Variables<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|text| !text.is_empty())
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T, String> {
        let text =
            self.get(name).ok_or_else(|| format!("the launcher has not set {name}; start this by srun or mpirun"))?;
        text.parse().map_err(|_| format!("{name} is {text:?}, which is not a number; check what sets it"))
    }

    fn open_mpi(&self) -> Result<Membership, String> {
        let (rank, size) = (self.number("OMPI_COMM_WORLD_RANK")?, self.number("OMPI_COMM_WORLD_SIZE")?);
        // The key of the job is random and the same on all hosts. Version 5 does not set it, but its namespace contains
        // the host and the process of mpirun.
        let job = ["OMPI_MCA_orte_precondition_transports", "PMIX_NAMESPACE"].iter().find_map(|name| self.get(name));
        let job = job.unwrap_or_default();
        let is_local = self.number::<Rank>("OMPI_COMM_WORLD_LOCAL_SIZE").is_ok_and(|local| local == size);
        let rendezvous = match (job.is_empty(), is_local) {
            (true, _) => None,
            (false, true) => Some(derived("127.0.0.1", &job)),
            // mpirun starts all ranks in the same folder, which most clusters share.
            (false, false) => Some(Rendezvous::of_job(&job)),
        };
        Ok(Membership { launcher: Launcher::OpenMpi, rank, size, job, rendezvous })
    }

    fn hydra(&self) -> Result<Membership, String> {
        let (rank, size) = (self.number("PMI_RANK")?, self.number("PMI_SIZE")?);
        let is_local = self.number::<Rank>("MPI_LOCALNRANKS").is_ok_and(|local| local == size);
        let rendezvous = self.number("PMI_FD").ok().map(|descriptor| Rendezvous::Pmi { descriptor, is_local });
        Ok(Membership { launcher: Launcher::Hydra, rank, size, job: String::new(), rendezvous })
    }

    fn torchrun(&self) -> Result<Membership, String> {
        let (rank, size) = (self.number("RANK")?, self.number("WORLD_SIZE")?);
        let host = self.get("MASTER_ADDR").unwrap_or_default();
        let port: u16 = self.number("MASTER_PORT")?;
        // The store of torchrun's agent listens at the port itself.
        let is_taken = self.get("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|text| text.eq_ignore_ascii_case("true"));
        let port = if is_taken { port.wrapping_add(1).max(1) } else { port };
        let job = self.get("TORCHELASTIC_RUN_ID").unwrap_or_default();
        let rendezvous = Some(Rendezvous::Address { host, ports: vec![port] });
        Ok(Membership { launcher: Launcher::Torchrun, rank, size, job, rendezvous })
    }

    fn slurm(&self) -> Result<Membership, String> {
        let rank = self.number("SLURM_PROCID")?;
        let size = self.number("SLURM_STEP_NUM_TASKS").or_else(|_| self.number("SLURM_NTASKS"))?;
        let part = |name: &str| self.get(name).unwrap_or_default();
        let job = format!("slurm {}.{}", part("SLURM_JOB_ID"), part("SLURM_STEP_ID"));
        // Slurm places rank 0 on the first host of the step.
        let list = self.get("SLURM_STEP_NODELIST").or_else(|| self.get("SLURM_JOB_NODELIST"));
        let rendezvous = list.and_then(|list| first_host(&list)).map(|host| derived(&host, &job));
        Ok(Membership { launcher: Launcher::Slurm, rank, size, job, rendezvous })
    }

    fn kubernetes(&self, ranks: Option<Rank>) -> Result<Membership, String> {
        let rank = self.number("JOB_COMPLETION_INDEX")?;
        let size = ranks.ok_or(
            "an indexed job does not state its number of completions; give it with --ranks, and rank 0's address with \
             --rendezvous JOB-0.SERVICE:PORT",
        )?;
        Ok(Membership { launcher: Launcher::Kubernetes, rank, size, job: String::new(), rendezvous: None })
    }
}

fn ssh(text: &str) -> Option<Membership> {
    let mut parts = text.split(' ');
    let (rank, size) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let rendezvous = Some(Rendezvous::parse(parts.next()?).ok()?);
    Some(Membership { launcher: Launcher::Ssh, rank, size, job: parts.next()?.to_owned(), rendezvous })
}

/// Returns the first host of a list in Slurm's notation, such as `a[01-04,7]-ib,b`.
fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list;
    loop {
        let end = rest.find(['[', ',']).unwrap_or(rest.len());
        let (text, after) = rest.split_at(end);
        host.push_str(text);
        let Some(inner) = after.strip_prefix('[') else { break };
        let (range, after) = inner.split_once(']')?;
        host.push_str(range.split([',', '-']).next()?);
        rest = after;
    }
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)], ranks: Option<Rank>) -> Result<Option<Membership>, String> {
        find(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()), ranks)
    }

    const SLURM: [(&str, &str); 5] = [
        ("SLURM_PROCID", "3"),
        ("SLURM_NTASKS", "8"),
        ("SLURM_STEP_NODELIST", "rack[07-09,12]-ib,x1"),
        ("SLURM_JOB_ID", "77"),
        ("SLURM_STEP_ID", "2"),
    ];
    const OPEN_MPI: [(&str, &str); 4] = [
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "4"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ("OMPI_MCA_orte_precondition_transports", "66741191cb461a3c-f393aa7a9f4a7c0d"),
    ];

    #[test]
    fn variables_of_each_launcher_are_read() {
        let slurm = found(&SLURM, None).unwrap().unwrap();
        assert_eq!((slurm.launcher, slurm.rank, slurm.size, slurm.job.as_str()), (Launcher::Slurm, 3, 8, "slurm 77.2"));
        assert!(
            matches!(slurm.rendezvous, Some(Rendezvous::Address { host, ports }) if host == "rack07-ib" && ports.len() > 1)
        );
        // mpirun within an allocation of Slurm.
        let both: Vec<_> = SLURM.into_iter().chain(OPEN_MPI).collect();
        let far = found(&both, None).unwrap().unwrap();
        assert_eq!((far.launcher, far.rank, far.size), (Launcher::OpenMpi, 1, 4));
        assert!(matches!(far.rendezvous, Some(Rendezvous::File(_))));
        let mut near = OPEN_MPI;
        near[2].1 = "4";
        let near = found(&near, None).unwrap().unwrap();
        assert!(matches!(near.rendezvous, Some(Rendezvous::Address { host, .. }) if host == "127.0.0.1"));
        let hydra = [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("PMI_FD", "6"), ("MPI_LOCALNRANKS", "2")];
        let both: Vec<_> = SLURM.into_iter().chain(hydra).collect();
        let hydra = found(&both, None).unwrap().unwrap();
        assert_eq!(hydra.rendezvous, Some(Rendezvous::Pmi { descriptor: 6, is_local: true }));
        // srun with PMI-2 sets variables of the same names.
        let both: Vec<_> = SLURM.into_iter().chain([("PMI_RANK", "3"), ("PMI_SIZE", "8"), ("PMI_FD", "6")]).collect();
        assert_eq!(found(&both, None).unwrap().unwrap().launcher, Launcher::Slurm);
        assert_eq!(found(&[("PATH", "/bin"), ("RANK", "1")], None), Ok(None));
    }

    #[test]
    fn torchrun_store_keeps_its_port() {
        let plain = [("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "h1"), ("MASTER_PORT", "29500")];
        let port = |variables: &[(&str, &str)]| match found(variables, None).unwrap().unwrap().rendezvous {
            Some(Rendezvous::Address { ports, .. }) => ports[0],
            other => panic!("{other:?}"),
        };
        assert_eq!(port(&plain), 29500);
        let store: Vec<_> = plain.into_iter().chain([("TORCHELASTIC_USE_AGENT_STORE", "True")]).collect();
        assert_eq!(port(&store), 29501);
    }

    #[test]
    fn kubernetes_requires_the_number_of_ranks() {
        let index = [("JOB_COMPLETION_INDEX", "2")];
        assert!(found(&index, None).unwrap_err().contains("--ranks"));
        assert_eq!(found(&index, Some(4)).unwrap().unwrap().size, 4);
    }

    #[test]
    fn invalid_variables_are_errors() {
        for (name, value, part) in [
            ("SLURM_PROCID", "x", "not a number"),
            ("SLURM_PROCID", "8", "rank 8 of 8 is invalid"),
            ("SLURM_NTASKS", "1", "at least two ranks"),
            ("SLURM_NTASKS", "", "has not set SLURM_NTASKS"),
        ] {
            let changed = SLURM.map(|(key, old)| (key, if key == name { value } else { old }));
            let error = found(&changed, None).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        assert!(found(&SLURM, Some(9)).unwrap_err().contains("leave out --ranks"));
        assert!(found(&[(OWN, "nonsense")], None).unwrap_err().contains("unset it"));
    }

    #[test]
    fn own_variable_round_trips() {
        let own = found(&[(OWN, "2 4 h1:4000 abc")], None).unwrap().unwrap();
        assert_eq!((own.rank, own.size, own.job.as_str()), (2, 4, "abc"));
        assert_eq!(own.rendezvous, Some(Rendezvous::Address { host: "h1".to_owned(), ports: vec![4000] }));
    }

    #[test]
    fn first_host_of_a_list() {
        for (list, host) in
            [("n1", "n1"), ("n[3-5]", "n3"), ("a,b", "a"), ("r[1-2]n[08,9]x,q", "r1n08x"), ("[7-9]", "7")]
        {
            assert_eq!(first_host(list).as_deref(), Some(host), "{list}");
        }
        assert_eq!(first_host("n[3"), None);
        assert_eq!(first_host(""), None);
    }
}
