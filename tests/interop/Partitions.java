// Prints, for each line of base64 on standard input, the hash of those bytes and the partition that Kafka's Java client
// sends a record with that key to. The argument is the number of partitions.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Base64;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

public final class Partitions {
    public static void main(String[] words) throws Exception {
        int partitions = Integer.parseInt(words[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            byte[] key = Base64.getDecoder().decode(line);
            out.append(Utils.murmur2(key)).append(' ');
            out.append(BuiltInPartitioner.partitionForKey(key, partitions)).append('\n');
        }
        System.out.print(out);
    }
}
