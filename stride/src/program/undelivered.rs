//! Warnings about paths over which no message arrived although messages arrived over other paths.

use crate::control::Step;
use crate::endpoint::PortInfo;
use crate::report::bytes_in_words as bytes;
use crate::stats::{Bandwidth, Figures};

/// Returns a warning for each direction in which nothing arrived, and for each such port of a direction, if messages
/// arrived elsewhere. If nothing arrived at all, the row and a hint report this. A step that was cut short has no hint,
/// so there is a warning in that case too.
pub(super) fn warnings(step: &Step, sides: Option<[&PortInfo; 2]>) -> Vec<String> {
    let (Some(Figures::Bandwidth(client)), Some(Figures::Bandwidth(server))) = (&step.client, &step.server) else {
        return Vec::new();
    };
    let ways = [("client", client, server), ("server", server, client)];
    let ways: Vec<_> = ways.into_iter().filter(|(_, sender, _)| sender.sent > Some(0)).collect();
    let is_silent = |sender: &Bandwidth, receiver: &Bandwidth| sender.sent > Some(0) && receiver.arrived == Some(0);
    let size = bytes(step.size);
    if ways.iter().all(|(_, sender, receiver)| is_silent(sender, receiver)) {
        let sent: u64 = ways.iter().filter_map(|(_, sender, _)| sender.sent).fold(0, u64::saturating_add);
        let text = || format!("{size}: none of the {sent} messages sent before the end arrived.");
        return (!step.is_whole && !ways.is_empty()).then(text).into_iter().collect();
    }
    let mut all = Vec::new();
    for (name, sender, receiver) in ways {
        if is_silent(sender, receiver) {
            all.push(format!(
                "{size}: nothing that the {name} sent arrived. This direction counts as zero, and the size misses \
                 --min-gbps and --min-mpps."
            ));
            continue;
        }
        let port_info = sides.map(|[client, server]| if name == "client" { client } else { server });
        for (at, (sender, receiver)) in sender.ports.iter().zip(&receiver.ports).enumerate() {
            if is_silent(sender, receiver) {
                let port = port_info
                    .and_then(|port_info| port_info.all().nth(at))
                    .map_or_else(String::new, |port_info| format!(", {},", port_info.name()));
                all.push(format!(
                    "{size}: nothing that the {name} sent from port {} of the test{port} arrived. This port counts as \
                     zero, and the size misses --min-gbps and --min-mpps.",
                    at + 1
                ));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(client: Bandwidth, server: Bandwidth, is_whole: bool) -> Step {
        let [client, server] = [client, server].map(|side| Some(Figures::Bandwidth(side)));
        Step { size: 64, client, server, counters: None, is_whole }
    }

    fn of(sent: Option<u64>, arrived: Option<u64>) -> Bandwidth {
        Bandwidth { sent, arrived, ..Bandwidth::default() }
    }

    #[test]
    fn direction_without_arrivals_causes_a_warning() {
        for (client, server, name) in [
            (of(Some(9), None), of(Some(9), Some(0)), "client"),
            (of(Some(9), Some(0)), of(Some(9), None), "server"),
            (of(Some(9), Some(0)), of(Some(9), Some(7)), "server"),
        ] {
            let found = warnings(&step(client, server, true), None);
            assert!(found.len() == 1 && found[0].starts_with(&format!("64 B: nothing that the {name} ")), "{found:?}");
        }
        assert_eq!(warnings(&step(of(Some(9), None), of(Some(9), None), true), None), [""; 0]);
    }

    #[test]
    fn lack_of_arrivals_causes_a_warning_only_after_a_cut() {
        let (sent, none) = (of(Some(9), None), of(None, Some(0)));
        assert_eq!(warnings(&step(sent.clone(), none.clone(), true), None), [""; 0]);
        let found = warnings(&step(sent, none.clone(), false), None);
        assert_eq!(found, ["64 B: none of the 9 messages sent before the end arrived."]);
        assert_eq!(warnings(&step(of(Some(0), None), none, false), None), [""; 0]);
    }

    #[test]
    fn port_without_arrivals_causes_a_warning() {
        let with = |ports: Vec<Bandwidth>, all: Bandwidth| Bandwidth { ports, ..all };
        let client = with(vec![of(Some(5), None), of(Some(4), None)], of(Some(9), None));
        let server = with(vec![of(None, None), of(None, Some(0))], of(None, None));
        let found = warnings(&step(client, server, true), None);
        assert!(found.len() == 1 && found[0].contains("the client sent from port 2 of the test"), "{found:?}");
    }
}
