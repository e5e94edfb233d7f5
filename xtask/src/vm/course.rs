//! The course of a run: which guest may start its command, which must end, and when all is done. It waits for nothing and
//! does nothing itself: it is shown events, and says what they lead to.

/// What a guest shows of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// It is up and may be told to start its command.
    Ready,
    /// Its command listens on the port that was named.
    Listening,
    /// Its command has ended.
    Exit(u8),
    /// One of its command's two outputs has been passed on to its end.
    Drained,
}

/// What is to be told to a guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Word {
    /// Start the command.
    Go,
    /// End the command.
    Stop,
}

/// One guest's state.
#[derive(Default)]
struct Guest {
    ready: bool,
    told_to_go: bool,
    told_to_stop: bool,
    listening: bool,
    exit: Option<u8>,
    drained: u8,
}

impl Guest {
    /// How its command ended, once all of its output has been passed on.
    fn done(&self) -> Option<u8> {
        self.exit.filter(|_| self.drained == 2)
    }
}

/// The guests of a run. Each starts its command after the guest before it; the run ends with the last command.
pub(super) struct Course {
    guests: Vec<Guest>,
    /// Whether a guest has started only once its command listens.
    listen: bool,
}

impl Course {
    pub(super) fn of(guests: usize, listen: bool) -> Course {
        Course { guests: (0..guests).map(|_| Guest::default()).collect(), listen }
    }

    /// What an event of the guest at `from` leads to.
    pub(super) fn on(&mut self, from: usize, event: Event) -> Vec<(usize, Word)> {
        let guest = &mut self.guests[from];
        match event {
            Event::Ready => guest.ready = true,
            Event::Listening => guest.listening = true,
            Event::Exit(code) => guest.exit = Some(code),
            Event::Drained => guest.drained += 1,
        }
        let mut words = Vec::new();
        let mut may_go = true;
        for (i, guest) in self.guests.iter_mut().enumerate() {
            if may_go && guest.ready && !guest.told_to_go {
                guest.told_to_go = true;
                words.push((i, Word::Go));
            }
            may_go = guest.exit.is_some() || guest.told_to_go && (!self.listen || guest.listening);
        }
        if self.last().is_some() {
            for (i, guest) in self.guests.iter_mut().enumerate() {
                if guest.exit.is_none() && !guest.told_to_stop {
                    guest.told_to_stop = true;
                    words.push((i, Word::Stop));
                }
            }
        }
        words
    }

    /// A guest that is not up yet.
    pub(super) fn not_ready(&self) -> Option<usize> {
        self.guests.iter().position(|guest| !guest.ready)
    }

    /// The exit code of the last command, once that is done: only what it needed is still to end.
    pub(super) fn last(&self) -> Option<u8> {
        self.guests.last().and_then(Guest::done)
    }

    /// The run's exit code, once it is over: the last command's, or that of one that failed before it.
    pub(super) fn over(&self) -> Option<u8> {
        match self.last() {
            Some(code) => self.guests.iter().all(|guest| guest.done().is_some()).then_some(code),
            None => self.guests.iter().filter_map(Guest::done).find(|code| *code != 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Event::*;

    #[test]
    fn one_guest_ends_with_its_commands_code_and_all_of_its_output() {
        let mut course = Course::of(1, false);
        assert_eq!(course.on(0, Ready), [(0, Word::Go)]);
        for event in [Drained, Exit(7)] {
            assert_eq!(course.on(0, event), []);
            assert_eq!(course.over(), None);
        }
        assert_eq!(course.on(0, Drained), []);
        assert_eq!(course.over(), Some(7));
    }

    #[test]
    fn the_edge_starts_after_the_node_and_the_node_stops_after_the_edge() {
        let mut course = Course::of(2, false);
        assert_eq!(course.on(1, Ready), []);
        assert_eq!(course.on(0, Ready), [(0, Word::Go), (1, Word::Go)]);
        assert!([Exit(3), Drained].iter().all(|event| course.on(1, *event).is_empty()));
        assert_eq!(course.on(1, Drained), [(0, Word::Stop)]);
        assert_eq!(course.over(), None);
        assert!([Exit(143), Drained, Drained].iter().all(|event| course.on(0, *event).is_empty()));
        assert_eq!(course.over(), Some(3), "not the code of the node that was stopped");
    }

    #[test]
    fn the_edge_waits_for_the_nodes_port() {
        let mut course = Course::of(2, true);
        assert_eq!(course.on(0, Ready), [(0, Word::Go)]);
        assert_eq!(course.on(1, Ready), []);
        assert_eq!(course.on(0, Listening), [(1, Word::Go)]);
    }

    #[test]
    fn a_node_that_is_done_is_waited_for_no_more() {
        let mut course = Course::of(2, true);
        course.on(0, Ready);
        course.on(1, Ready);
        assert_eq!(course.on(0, Exit(0)), [(1, Word::Go)]);
        course.on(0, Drained);
        course.on(0, Drained);
        assert_eq!(course.over(), None, "the edge's command runs");
        course.on(1, Drained);
        course.on(1, Drained);
        course.on(1, Exit(0));
        assert_eq!(course.over(), Some(0));
    }

    #[test]
    fn a_node_that_fails_ends_the_run() {
        let mut course = Course::of(2, false);
        for event in [Ready, Exit(1), Drained, Drained] {
            course.on(0, event);
        }
        assert_eq!(course.over(), Some(1));
    }
}
