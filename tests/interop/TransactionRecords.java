import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogKey;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogValue;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogValueJsonConverter;

/**
 * Prints random records of __transaction_state as Kafka's own classes write them: one a line, tab between
 * version, transactional id (base64), partition of 50, key (hex), value (hex), value (JSON). Topics are in order.
 * Arguments: seed, count.
 */
public class TransactionRecords {
    static Random random;

    static String text() {
        String[] letters = {"a", "-", ".", "ß", "漢", "😀", "\"", "\\", "\u0000"};
        StringBuilder made = new StringBuilder();
        for (int left = random.nextInt(6); left > 0; left--) made.append(letters[random.nextInt(letters.length)]);
        return made.toString();
    }

    static List<TransactionLogValue.PartitionsSchema> topics() {
        TreeMap<String, TreeSet<Integer>> drawn = new TreeMap<>();
        for (int left = random.nextInt(5); left > 0; left--) {
            TreeSet<Integer> numbers = drawn.computeIfAbsent("t" + random.nextInt(200), name -> new TreeSet<>());
            for (int more = random.nextInt(200); more >= 0; more--) numbers.add(random.nextInt(1000));
        }
        List<TransactionLogValue.PartitionsSchema> made = new ArrayList<>();
        drawn.forEach((topic, numbers) -> made.add(
            new TransactionLogValue.PartitionsSchema().setTopic(topic).setPartitionIds(new ArrayList<>(numbers))));
        return made;
    }

    static TransactionLogValue value(short version) {
        byte state = (byte) random.nextInt(8);
        TransactionLogValue made = new TransactionLogValue().setProducerId(random.nextLong())
            .setProducerEpoch((short) random.nextInt()).setTransactionTimeoutMs(random.nextInt())
            .setTransactionStatus(state).setTransactionPartitions(state == 0 ? null : topics())
            .setTransactionLastUpdateTimestampMs(random.nextLong()).setTransactionStartTimestampMs(random.nextLong());
        if (version == 1 && random.nextBoolean()) made.setPreviousProducerId(random.nextLong());
        if (version == 1 && random.nextBoolean()) made.setNextProducerId(random.nextLong());
        if (version == 1 && random.nextBoolean()) made.setClientTransactionVersion((short) random.nextInt(3));
        return made;
    }

    public static void main(String[] args) {
        random = new Random(Long.parseLong(args[0]));
        for (int number = 0; number < Integer.parseInt(args[1]); number++) {
            short version = (short) (number % 2);
            String id = text();
            TransactionLogValue value = value(version);
            byte[] name = id.getBytes(java.nio.charset.StandardCharsets.UTF_8);
            HexFormat hex = HexFormat.of();
            System.out.println(String.join("\t", "" + version, Base64.getEncoder().encodeToString(name),
                "" + Utils.abs(id.hashCode()) % 50,
                hex.formatHex(MessageUtil.toVersionPrefixedBytes((short) 0, new TransactionLogKey().setTransactionalId(id))),
                hex.formatHex(MessageUtil.toVersionPrefixedBytes(version, value)),
                TransactionLogValueJsonConverter.write(value, version).toString()));
        }
    }
}
