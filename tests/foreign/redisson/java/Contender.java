import java.io.FileOutputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** A worker of tests/faults/history/peers.rs: threads that take locks by Redisson and write down what they got. */
public class Contender {
    static RedissonClient redisson;
    static FileOutputStream journal;
    static volatile boolean stopped;

    public static void main(String[] args) throws Exception {
        journal = new FileOutputStream(args[1], true);
        Config config = new Config();
        config.setThreads(4).setNettyThreads(4).setLockWatchdogTimeout(900);
        config.useSingleServer().setAddress("redis://127.0.0.1:" + args[0]).setConnectionMinimumIdleSize(2)
            .setConnectionPoolSize(16).setTimeout(450).setConnectTimeout(450);
        while (redisson == null) {
            try {
                redisson = Redisson.create(config);
            } catch (Exception e) {
                Thread.sleep(20);
            }
        }
        List<Thread> threads = new ArrayList<>();
        for (int i = 1; i <= 4; i++) {
            int thread = i;
            Thread player = new Thread(() -> play(args[2] + "." + thread + ".", new Random(Long.parseUnsignedLong(args[3]) + thread)));
            player.start();
            threads.add(player);
        }
        System.in.read();
        stopped = true;
        for (Thread thread : threads) thread.join();
        System.exit(0);
    }

    static void play(String who, Random dice) {
        for (int number = 1; !stopped; number++) {
            String name = List.of("a", "a", "b", "c").get(dice.nextInt(4));
            RLock lock = redisson.getLock(name);
            note(who + number, "called " + name + " TryLockFor");
            try {
                if (!lock.tryLock(2, TimeUnit.SECONDS)) {
                    note(who + number, "ended none");
                    continue;
                }
            } catch (Exception e) {
                note(who + number, "ended " + e.getClass().getSimpleName());
                sleep(20_000);
                continue;
            }
            note(who + number, "held 0 0");
            sleep(work(dice));
            note(who + number, "release 0");
            try {
                lock.unlock();
                note(who + number, "released ok");
            } catch (Exception e) {
                note(who + number, "released " + e.getClass().getSimpleName());
            }
            sleep(dice.nextInt(2000));
        }
    }

    static int work(Random dice) {
        double n = dice.nextDouble();
        if (n < 0.003) return 900_000 + dice.nextInt(450_000);
        return dice.nextInt(n < 0.7 ? 1000 : n < 0.85 ? 10_000 : 100_000);
    }

    static void sleep(int micros) {
        try {
            Thread.sleep(micros / 1000, micros % 1000 * 1000);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    static void note(String who, String what) {
        try {
            journal.write((System.nanoTime() / 1000 + " " + who + " " + what + "\n").getBytes());
        } catch (java.io.IOException e) {
            throw new IllegalStateException(e);
        }
    }
}
