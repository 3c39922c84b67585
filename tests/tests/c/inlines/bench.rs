//! Calls the port and the C function in a situation, and compares their effects.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::path::Path;

use libloading::Library;
use rdma_mummy_sys::ibv_cq;
use rdma_mummy_sys::load::ibverbs::Ibverbs;
use rdma_mummy_sys::load::mlx5::Mlx5;
use sideway_tests::{headers, requirements};

use super::record::{self, Call, Effect};
use super::word::Word;
use super::world::{Owned, World};

/// The value of `errno` before a call: no valid errno.
const UNTOUCHED: i32 = 7777;

/// Return values that distinguish a zero, an errno, a failure and a pointer, at every width.
pub(crate) const ANSWERS: &[&[u64]] = &[&[0], &[22], &[u64::MAX], &[0x1122_3344_5566_7788]];

pub(crate) struct Bench {
    library: Library,
    world: Owned,
    situation: String,
    prepare: Box<dyn Fn(&mut World)>,
    answers: Vec<Vec<u64>>,
    effect: Option<fn(*mut World)>,
    /// Whether any call was recorded in the last comparison.
    called: bool,
    compared: BTreeMap<&'static str, usize>,
}

/// The effects of a call.
#[derive(PartialEq)]
struct Outcome {
    returned: u64,
    errno: i32,
    calls: Vec<Call>,
    memory: Vec<u8>,
}

impl Bench {
    /// Compiles the C side. `None` if that is impossible, with a message.
    pub(crate) fn open() -> Option<Self> {
        let compiler = requirements::c_compiler()?;
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let present = super::HEADERS.iter().all(|header| compiler.has_header(folder, header));
        if !present || !headers::are_those_of_the_bindings() {
            return None;
        }
        let mut arguments = vec!["-Wl,-Bsymbolic"];
        if cfg!(target_arch = "x86_64") {
            arguments.push("-mssse3");
        }
        let library = compiler.load(folder, "inlines", include_str!("../../../c/inlines.c"), &arguments);
        use_as_libraries(&folder.join("libinlines.so"));
        type Recorder = unsafe extern "C" fn(*const std::ffi::c_char, usize, *const u64) -> u64;
        // SAFETY: `inlines.c` defines it with this type.
        unsafe {
            let set_recorder = library.get::<unsafe extern "C" fn(Recorder)>(b"set_recorder").unwrap();
            set_recorder(record::note_from_c);
        }
        Some(Bench {
            library,
            world: Owned::new(),
            situation: String::new(),
            prepare: Box::new(|_| ()),
            answers: ANSWERS.iter().map(|answers| answers.to_vec()).collect(),
            effect: None,
            called: false,
            compared: BTreeMap::new(),
        })
    }

    /// The objects' addresses.
    pub(crate) fn at(&self) -> *mut World {
        self.world.at()
    }

    /// Sets the situation of the following comparisons, with each answer of [`ANSWERS`] in turn.
    pub(crate) fn given(&mut self, situation: &str, prepare: impl Fn(&mut World) + 'static) -> &mut Self {
        situation.clone_into(&mut self.situation);
        self.prepare = Box::new(prepare);
        self.answers = ANSWERS.iter().map(|answers| answers.to_vec()).collect();
        self.effect = None;
        self
    }

    /// Sets other answers, a list for each comparison.
    pub(crate) fn answering(&mut self, answers: &[&[u64]]) -> &mut Self {
        self.answers = answers.iter().map(|answers| answers.to_vec()).collect();
        self
    }

    /// Sets the action of every operation before it returns.
    pub(crate) fn doing(&mut self, effect: fn(*mut World)) {
        self.effect = Some(effect);
    }

    /// Whether any operation or library function was called in the last comparison.
    pub(crate) fn called(&self) -> bool {
        self.called
    }

    /// Sets the event that `ibv_get_cq_event` delivers.
    pub(crate) fn deliver(&self, cq: *mut ibv_cq, context: *mut c_void) {
        // SAFETY: `inlines.c` defines it with this type.
        unsafe {
            let set_event = self.library.get::<unsafe extern "C" fn(*mut ibv_cq, *mut c_void)>(b"set_event").unwrap();
            set_event(cq, context);
        }
    }

    /// How often each function was compared.
    pub(crate) fn compared(&self) -> &BTreeMap<&'static str, usize> {
        &self.compared
    }

    /// Calls `port` and the C function of this name with each list of answers.
    pub(crate) fn compare<P: Port>(&mut self, name: &'static str, port: P, arguments: P::Arguments) {
        // SAFETY: only the address is taken here.
        let symbol = unsafe { *self.library.get::<*mut c_void>(format!("c_{name}").as_bytes()).unwrap() };
        for answers in self.answers.clone() {
            // SAFETY: `inlines.c` defines it from the inline of this name, whose prototype the port has. In every
            // situation that a test sets, the objects meet the requirements of the inline.
            let expected = self.outcome(&answers, || unsafe { port.call_in_c(symbol, arguments) });
            // SAFETY: as above.
            let got = self.outcome(&answers, || unsafe { port.call(arguments) });
            let at = format!("{name}, {}, answers {answers:x?}", self.situation);
            assert_eq!(got.calls, expected.calls, "{at}: other calls (left: Rust, right: C)");
            // C defines only the sign of `memcmp`'s result.
            let defined = |word: u64| if name == "ib_addr_cmp" { (word as i32).signum() as u64 } else { word };
            let (returned, in_c) = (defined(got.returned), defined(expected.returned));
            assert_eq!(returned, in_c, "{at}: other return value (left: Rust, right: C)");
            assert_eq!(got.errno, expected.errno, "{at}: other errno (left: Rust, right: C)");
            let different = got.memory.iter().zip(&expected.memory).position(|(got, expected)| got != expected);
            assert_eq!(different, None, "{at}: the objects differ from this byte on");
            self.called = !expected.calls.is_empty();
            *self.compared.entry(name).or_default() += 1;
        }
    }

    fn outcome(&mut self, answers: &[u64], call: impl FnOnce() -> u64) -> Outcome {
        self.world.reset();
        (self.prepare)(&mut self.world);
        let at = self.world.at();
        record::expect(answers, self.effect.map(|effect| Box::new(move || effect(at)) as Effect));
        set_errno(UNTOUCHED);
        let returned = call();
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or_default();
        Outcome { returned, errno, calls: record::calls(), memory: self.world.bytes() }
    }
}

fn set_errno(code: i32) {
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() = code };
}

/// A function of this crate, with the type of the C function except for the calling convention.
pub(crate) trait Port: Copy {
    /// The arguments, as a tuple.
    type Arguments: Copy;

    /// Calls the port.
    ///
    /// # Safety
    ///
    /// The arguments meet the port's requirements.
    unsafe fn call(self, arguments: Self::Arguments) -> u64;

    /// Calls the C function at `symbol`.
    ///
    /// # Safety
    ///
    /// `symbol` is the C function of this port, and the arguments meet its requirements.
    unsafe fn call_in_c(self, symbol: *mut c_void, arguments: Self::Arguments) -> u64;
}

macro_rules! ports {
    ($($($Argument:ident)*;)*) => {$(
        #[expect(non_snake_case, reason = "an argument is named like its type")]
        impl<Answer: Word, $($Argument: Word),*> Port for unsafe fn($($Argument),*) -> Answer {
            type Arguments = ($($Argument,)*);

            unsafe fn call(self, ($($Argument,)*): Self::Arguments) -> u64 {
                // SAFETY: by contract.
                unsafe { self($($Argument),*) }.word()
            }

            unsafe fn call_in_c(self, symbol: *mut c_void, ($($Argument,)*): Self::Arguments) -> u64 {
                type InC<Answer, $($Argument),*> = unsafe extern "C" fn($($Argument),*) -> Answer;
                // SAFETY: by contract the symbol is a function of that type.
                let function = unsafe { std::mem::transmute::<*mut c_void, InC<Answer, $($Argument),*>>(symbol) };
                // SAFETY: by contract.
                unsafe { function($($Argument),*) }.word()
            }
        }
    )*};
}

ports! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
    A B C D E F G H I;
    A B C D E F G H I J;
    A B C D E F G H I J K;
    A B C D E F G H I J K L;
}

/// Compares a call of the port that is in scope under this name with the same call in C.
macro_rules! both {
    ($bench:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let port: unsafe fn($($crate::inlines::bench::both!(@any $argument)),*) -> _ = $name;
        $bench.compare(stringify!($name), port, ($($argument,)*));
    }};
    (@any $argument:expr) => { _ };
}
pub(crate) use both;

/// Makes the port call the library functions of `inlines.c` instead of those of libibverbs and libmlx5.
fn use_as_libraries(path: &Path) {
    // SAFETY: `inlines.c` has no constructors, and its functions have the types of the functions that they replace.
    let (ibverbs, mlx5) = unsafe { (Ibverbs::open_from(path), Mlx5::open_from(path)) };
    ibverbs.unwrap().install().expect("no verb was called before");
    mlx5.unwrap().install().expect("no verb was called before");
}
