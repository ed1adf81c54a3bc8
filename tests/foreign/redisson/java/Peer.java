import java.time.Duration;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * Locks by Redisson as it is told on standard input: see java.rs. Its server is named by its port, or the nodes of a
 * cluster by theirs. A line is the number of a thread and what it is to
 * do; its answer begins with the same number.
 */
public class Peer {
    static RedissonClient redisson;
    static RLock lock;
    static RFencedLock fenced;

    public static void main(String[] args) {
        Config config = new Config();
        config.setThreads(2).setNettyThreads(2).setLockWatchdogTimeout(Long.parseLong(args[2]));
        String[] ports = args[0].split(",");
        if (ports.length == 1) {
            config.useSingleServer().setAddress("redis://127.0.0.1:" + ports[0]).setConnectionMinimumIdleSize(2)
                .setConnectionPoolSize(16).setRetryAttempts(20).setTimeout(3000);
        } else {
            var cluster = config.useClusterServers().setMasterConnectionMinimumIdleSize(1).setMasterConnectionPoolSize(8)
                .setRetryAttempts(20).setTimeout(3000);
            for (String port : ports) cluster.addNodeAddress("redis://127.0.0.1:" + port);
        }
        redisson = Redisson.create(config);
        lock = redisson.getLock(args[1]);
        fenced = redisson.getFencedLock(args[1]);
        say("0 ready");
        Map<String, ExecutorService> threads = new ConcurrentHashMap<>();
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            threads.computeIfAbsent(words[0], name -> Executors.newSingleThreadExecutor()).execute(() -> {
                String answer;
                try {
                    answer = does(words);
                } catch (Exception e) {
                    answer = "failed: " + e.getClass().getSimpleName();
                }
                say(words[0] + " " + answer);
            });
        }
        System.exit(0);
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static String does(String[] words) throws Exception {
        switch (words[1]) {
            case "lock":
                lock.lock();
                return "in";
            case "try":
                return lock.tryLock(Long.parseLong(words[2]), TimeUnit.MILLISECONDS) ? "in" : "busy";
            case "unlock":
                lock.unlock();
                return "out";
            case "force":
                return lock.forceUnlock() ? "forced" : "free";
            case "look":
                return lock.isLocked() + " " + lock.isHeldByCurrentThread() + " " + lock.getHoldCount();
            case "fenced":
                return String.valueOf(fenced.lockAndGetToken());
            case "unfence":
                fenced.unlock();
                return "out";
            case "storm":
                return storm(Integer.parseInt(words[2]), Long.parseLong(words[3]));
            default:
                return "what?";
        }
    }

    /** Locks again and again by so many threads; how often, the longest wait in ms, and who was not alone. */
    static String storm(int threads, long ms) throws Exception {
        AtomicLong holds = new AtomicLong(), longest = new AtomicLong(), violations = new AtomicLong(), failed = new AtomicLong();
        long end = System.nanoTime() + Duration.ofMillis(ms).toNanos();
        Thread[] all = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            String me = "java " + i;
            all[i] = new Thread(() -> {
                while (System.nanoTime() < end) {
                    try {
                        long began = System.nanoTime();
                        lock.lock();
                        longest.accumulateAndGet((System.nanoTime() - began) / 1_000_000, Math::max);
                        var inside = redisson.<String>getBucket("inside", StringCodec.INSTANCE);
                        String before = inside.getAndSet(me);
                        if (before != null && !before.isEmpty() && !before.equals(me)) violations.incrementAndGet();
                        inside.set("");
                        holds.incrementAndGet();
                        lock.unlock();
                    } catch (Exception e) {
                        System.err.println(me + ": " + e);
                        failed.incrementAndGet();
                    }
                }
            });
            all[i].start();
        }
        for (Thread thread : all) thread.join();
        return holds + " " + longest + " " + violations + " " + failed;
    }
}
