//! Operations that record their callers and arguments, and answer as configured.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{CStr, c_char};

use super::word::Word;

/// One call of an operation or of a library function.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Call {
    name: String,
    arguments: Vec<u64>,
}

/// What happens inside a call before it returns.
pub(crate) type Effect = Box<dyn FnMut()>;

#[derive(Default)]
struct Script {
    calls: Vec<Call>,
    /// One answer for each call; the last one stays.
    answers: VecDeque<u64>,
    effect: Option<Effect>,
}

thread_local! {
    static SCRIPT: RefCell<Script> = RefCell::default();
}

/// Clears the log, and sets the next answers.
pub(crate) fn expect(answers: &[u64], effect: Option<Effect>) {
    let answers = answers.iter().copied().collect();
    SCRIPT.set(Script { calls: Vec::new(), answers, effect });
}

/// The calls since [`expect`].
pub(crate) fn calls() -> Vec<Call> {
    SCRIPT.take().calls
}

/// Records a call, and returns its answer.
pub(crate) fn note(name: &str, arguments: &[u64]) -> u64 {
    SCRIPT.with_borrow_mut(|script| {
        script.calls.push(Call { name: name.to_owned(), arguments: arguments.to_vec() });
        if let Some(effect) = &mut script.effect {
            effect();
        }
        match script.answers.len() {
            0 => 0,
            1 => script.answers[0],
            _ => script.answers.pop_front().unwrap_or_default(),
        }
    })
}

/// [`note`] for the functions written in C.
///
/// # Safety
///
/// `name` is a C string, and there are `count` arguments.
pub(crate) unsafe extern "C" fn note_from_c(name: *const c_char, count: usize, arguments: *const u64) -> u64 {
    // SAFETY: by contract.
    let (name, arguments) = unsafe { (CStr::from_ptr(name), std::slice::from_raw_parts(arguments, count)) };
    note(name.to_str().unwrap(), arguments)
}

/// The name of an operation.
pub(crate) trait Named {
    const NAME: &'static str;
}

/// A function pointer type with a value that records its calls.
pub(crate) trait Recorder {
    fn recorder<Name: Named>() -> Self;
}

macro_rules! recorders {
    ($($($Argument:ident)*;)*) => {$(
        impl<Answer: Word, $($Argument: Word),*> Recorder for unsafe extern "C" fn($($Argument),*) -> Answer {
            fn recorder<Name: Named>() -> Self {
                #[expect(non_snake_case, reason = "an argument is named like its type")]
                unsafe extern "C" fn body<Name: Named, Answer: Word, $($Argument: Word),*>(
                    $($Argument: $Argument),*
                ) -> Answer {
                    Answer::from_word(note(Name::NAME, &[$($Argument.word()),*]))
                }
                body::<Name, Answer, $($Argument),*>
            }
        }
    )*};
}

recorders! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
}

/// Fills the operations of a table with recorders of the same names.
macro_rules! record {
    ($table:expr; $($operation:ident)*) => {$({
        struct Operation;
        impl $crate::inlines::record::Named for Operation {
            const NAME: &'static str = stringify!($operation);
        }
        $table.$operation = Some($crate::inlines::record::Recorder::recorder::<Operation>());
    })*};
}
pub(crate) use record;
