//! Unit tests of `src/cancel.rs`.

use super::*;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Wake};

#[test]
fn a_child_ends_alone_and_with_its_parent() {
    let parent = CancellationToken::new();
    let (a, b) = (parent.child(), parent.child());
    a.cancel();
    assert!(a.is_cancelled() && !parent.is_cancelled() && !b.is_cancelled());
    parent.cancel();
    assert!(b.is_cancelled() && parent.child().is_cancelled());
}

#[test]
fn wakers_are_called_once_and_can_be_taken_back() {
    let token = CancellationToken::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let count = |calls: &Arc<AtomicUsize>| {
        let calls = calls.clone();
        move || {
            calls.fetch_add(1, Ordering::SeqCst);
        }
    };
    drop(token.on_cancel(Arc::new(count(&calls))));
    let kept = token.on_cancel(Arc::new(count(&calls)));
    token.cancel();
    token.cancel();
    drop(kept);
    drop(token.on_cancel(Arc::new(count(&calls))));
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[test]
fn a_panic_in_a_waker_keeps_nobody_waiting() {
    let token = CancellationToken::new();
    let (child, receiver, woken) = (token.child(), token.receiver(), Arc::new(AtomicBool::new(false)));
    // Without the panic hook's message on standard error.
    token.when_cancelled(Arc::new(|| std::panic::resume_unwind(Box::new("on purpose"))));
    let wakes = woken.clone();
    token.when_cancelled(Arc::new(move || wakes.store(true, Ordering::SeqCst)));
    token.cancel();
    assert!(woken.load(Ordering::SeqCst) && child.is_cancelled());
    assert!(receiver.try_recv().is_err_and(|e| e.is_disconnected()));
}

#[test]
fn a_future_ends_with_the_token_and_leaves_nothing_behind() {
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let token = CancellationToken::new();
    let wakers = || token.0.state.lock().wakers.len();
    let woken = Arc::new(Count(AtomicUsize::new(0)));
    let waker = woken.clone().into();
    let mut context = Context::from_waker(&waker);
    let mut future = Box::pin(token.cancelled());
    for _ in 0..2 {
        assert!(future.as_mut().poll(&mut context).is_pending());
        assert_eq!(wakers(), 1);
    }
    drop(future);
    assert_eq!(wakers(), 0);
    let mut future = Box::pin(token.cancelled());
    assert!(future.as_mut().poll(&mut context).is_pending());
    token.cancel();
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    assert!(future.as_mut().poll(&mut context).is_ready());
    assert!(Box::pin(token.cancelled()).as_mut().poll(&mut context).is_ready());
}

#[test]
fn a_receiver_is_ready_whenever_it_was_taken() {
    let token = CancellationToken::new();
    let early = token.receiver();
    assert!(early.try_recv().is_err_and(|e| e.is_empty()));
    token.cancel();
    for receiver in [early, token.receiver()] {
        assert!(receiver.try_recv().is_err_and(|e| e.is_disconnected()));
    }
}

#[test]
fn a_token_ends_with_one_whose_child_is_gone() {
    let token = CancellationToken::new();
    let grandchild = token.child().child();
    let future = token.child().cancelled();
    token.cancel();
    assert!(grandchild.is_cancelled());
    let mut context = Context::from_waker(std::task::Waker::noop());
    assert!(Box::pin(future).as_mut().poll(&mut context).is_ready());
}

#[test]
fn what_is_over_is_not_kept() {
    let token = CancellationToken::new();
    for _ in 0..100 {
        drop(token.child().child());
    }
    assert!(token.0.state.lock().children.len() < 10);
    // A child keeps its parent alive until it is cancelled.
    let (child, parent) = (token.child(), Arc::downgrade(&token.0));
    drop(token);
    assert!(parent.upgrade().is_some());
    child.cancel();
    assert!(parent.upgrade().is_none());
}

#[test]
fn many_that_are_needed_are_not_looked_at_each_time() {
    let (mut list, mut looks) = (Vec::new(), 0);
    for i in 0..10_000 {
        push_swept(&mut list, i, |_| {
            looks += 1;
            true
        });
    }
    assert!(list.into_iter().eq(0..10_000) && looks < 20_000, "{looks}");
}

/// So many tokens, each the child of the previous one, that a call for each does not fit on a small stack.
#[cfg(not(shuttle))]
#[test]
fn a_chain_may_be_longer_than_the_stack() {
    const LINKS: usize = 100_000;
    let small = std::thread::Builder::new().stack_size(64 * 1024);
    let ended = small.spawn(|| {
        let mut last = CancellationToken::new();
        for _ in 0..LINKS {
            last = last.child();
        }
        // It is all that keeps the others alive.
        drop(last);
        let root = CancellationToken::new();
        let chain: Vec<_> =
            std::iter::successors(Some(root.clone()), |it| Some(it.child())).take(LINKS).collect();
        root.cancel();
        assert!(chain.iter().all(CancellationToken::is_cancelled));
    });
    assert!(ended.unwrap().join().is_ok());
}

#[test]
fn each_is_woken_before_its_children_in_their_order() {
    let root = CancellationToken::new();
    let woken = Arc::new(Mutex::new(Vec::new()));
    let tells = |token: &CancellationToken, name: &'static str| {
        let woken = woken.clone();
        token.when_cancelled(Arc::new(move || woken.lock().push(name)));
    };
    let (a, b) = (root.child(), root.child());
    let (of_a, of_b) = (a.child(), b.child());
    for (token, name) in [(&of_b, "of b"), (&of_a, "of a"), (&b, "b"), (&a, "a"), (&root, "root")] {
        tells(token, name);
    }
    root.cancel();
    assert_eq!(*woken.lock(), ["root", "a", "of a", "b", "of b"]);
}

/// What a waker owns is dropped with it, and may then use the token.
#[cfg(not(shuttle))]
#[test]
fn what_a_waker_owned_may_use_the_token_when_it_goes() {
    use std::pin::Pin;

    struct Cancels(CancellationToken);
    impl Drop for Cancels {
        fn drop(&mut self) {
            self.0.cancel();
        }
    }
    struct Task(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);
    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().take());
        }
    }
    fn polls(future: &mut Pin<Box<impl Future<Output = ()>>>, waker: &std::task::Waker) {
        assert!(future.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let token = CancellationToken::new();
        let (mut one, mut other) = (Box::pin(token.cancelled()), Box::pin(token.cancelled()));
        polls(&mut other, std::task::Waker::noop());
        // The task of the first future owns the second one, until the first is polled by another task.
        polls(&mut one, &Arc::new(Task(Mutex::new(Some(other)))).into());
        polls(&mut one, std::task::Waker::noop());
        assert_eq!(token.0.state.lock().wakers.len(), 1);
        let cancels = Cancels(token.clone());
        drop(token.on_cancel(Arc::new(move || drop(cancels.0.clone()))));
        assert!(token.is_cancelled());
        let _ = sender.send(());
    });
    assert!(ended.recv_timeout(Duration::from_secs(20)).is_ok(), "it waits for itself, or has panicked");
}
