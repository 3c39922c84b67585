//! The processor model and the frequency governor, both of which affect the results.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Returns the model of the first processor. The result is empty if the system does not report the model, as on
/// AArch64.
pub(super) fn model() -> String {
    named(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
}

/// Returns the cpufreq governor, such as `performance`. If processors have different governors, all are listed,
/// separated by commas. Empty if there is none, as in most virtual machines.
pub(super) fn governor() -> String {
    governors(Path::new("/sys/devices/system/cpu/cpufreq"))
}

fn named(list: &str) -> String {
    let fields = list.lines().filter_map(|line| line.split_once(':'));
    let mut names = fields.filter(|(key, _)| key.trim() == "model name").map(|(_, name)| name);
    names.next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn governors(folder: &Path) -> String {
    let policies = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let names = policies.filter_map(|policy| fs::read_to_string(policy.path().join("scaling_governor")).ok());
    let names: BTreeSet<_> = names.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
    names.into_iter().collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_is_that_of_the_first_processor() {
        let list =
            "processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC 9R14  96-Core Processor \n\nmodel name\t: another\n";
        assert_eq!(named(list), "AMD EPYC 9R14 96-Core Processor");
        assert_eq!(named("processor\t: 0\nBogoMIPS\t: 2100.00\n"), "");
    }

    #[test]
    fn different_governors_are_all_listed() {
        let folder = sideway_test_names::Folder::new();
        for (policy, governor) in [("policy0", "powersave\n"), ("policy4", "performance\n"), ("policy8", "powersave\n")]
        {
            fs::create_dir_all(folder.join(policy)).unwrap();
            fs::write(folder.join(policy).join("scaling_governor"), governor).unwrap();
        }
        // The folder also contains other files, which must be ignored.
        fs::write(folder.join("boost"), "1\n").unwrap();
        assert_eq!(governors(folder.path()), "performance,powersave");
        assert_eq!(governors(&folder.join("absent")), "");
    }
}
