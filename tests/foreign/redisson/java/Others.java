import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import java.util.Scanner;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.integration.redis.util.RedisLockRegistry;

/** Locks by ShedLock and by Spring Integration as it is told on standard input: see others.rs. */
public class Others {
    public static void main(String[] args) throws Exception {
        LettuceConnectionFactory redis = new LettuceConnectionFactory("127.0.0.1", Integer.parseInt(args[0]));
        redis.afterPropertiesSet();
        redis.start();
        RedisLockProvider shedlock = new RedisLockProvider(redis, args[1]);
        Lock spring = new RedisLockRegistry(redis, args[2], 5000).obtain(args[3]);
        RedisLockRegistry told = new RedisLockRegistry(redis, args[2], 600000);
        told.setRedisLockType(RedisLockRegistry.RedisLockType.PUB_SUB_LOCK);
        Lock heard = told.obtain(args[4]);
        Optional<SimpleLock> held = Optional.empty();
        System.out.println("0 ready");
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            String answer = "out";
            switch (words[1]) {
                case "job":
                    Duration most = Duration.ofMillis(Long.parseLong(words[3])), least = Duration.ofMillis(Long.parseLong(words[4]));
                    held = shedlock.lock(new LockConfiguration(Instant.now(), words[2], most, least));
                    answer = held.isPresent() ? "in" : "busy";
                    break;
                case "done":
                    held.get().unlock();
                    break;
                case "try":
                    answer = spring.tryLock(Long.parseLong(words[2]), TimeUnit.MILLISECONDS) ? "in" : "busy";
                    break;
                case "unlock":
                    spring.unlock();
                    break;
                case "hear":
                    answer = heard.tryLock(Long.parseLong(words[2]), TimeUnit.MILLISECONDS) ? "in" : "busy";
                    break;
                case "free":
                    heard.unlock();
                    break;
                case "turns":
                    // As often as it is to be had, one hold after the other.
                    for (int i = Integer.parseInt(words[2]); i > 0; i--) {
                        heard.lock();
                        heard.unlock();
                    }
                    break;
                default:
                    answer = "what?";
            }
            System.out.println("0 " + answer);
        }
        System.exit(0);
    }
}
