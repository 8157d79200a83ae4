import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.group.generated.GroupMetadataKey;
import org.apache.kafka.coordinator.group.generated.GroupMetadataValue;
import org.apache.kafka.coordinator.group.generated.GroupMetadataValueJsonConverter;
import org.apache.kafka.coordinator.group.generated.OffsetCommitKey;
import org.apache.kafka.coordinator.group.generated.OffsetCommitValue;
import org.apache.kafka.coordinator.group.generated.OffsetCommitValueJsonConverter;

/**
 * Prints random records of __consumer_offsets as Kafka's own classes write them: one a line, tab between
 * kind, version, group, partition of 50, key (hex), value (hex), value (JSON).
 * Arguments: seed, count.
 */
public class GroupRecords {
    static Random random;

    static String text() {
        String[] letters = {"a", "-", ".", "ß", "漢", "😀", "\"", "\\", "\u0000"};
        StringBuilder made = new StringBuilder();
        for (int left = random.nextInt(6); left > 0; left--) made.append(letters[random.nextInt(letters.length)]);
        return made.toString();
    }

    static String maybe() {
        return random.nextInt(4) == 0 ? null : text();
    }

    static byte[] bytes() {
        byte[] made = new byte[random.nextInt(200)];
        random.nextBytes(made);
        return made;
    }

    static OffsetCommitValue offset(short version) {
        OffsetCommitValue value = new OffsetCommitValue().setOffset(random.nextLong()).setMetadata(text().repeat(30))
            .setCommitTimestamp(random.nextLong()).setLeaderEpoch(random.nextInt());
        if (version == 1) value.setExpireTimestamp(random.nextLong());
        if (version == 4 && random.nextBoolean()) value.setTopicId(Uuid.randomUuid());
        return value;
    }

    static GroupMetadataValue group() {
        List<GroupMetadataValue.MemberMetadata> members = new ArrayList<>();
        for (int left = random.nextInt(4); left > 0; left--) {
            members.add(new GroupMetadataValue.MemberMetadata().setMemberId(text()).setGroupInstanceId(maybe())
                .setClientId(text()).setClientHost(text()).setRebalanceTimeout(random.nextInt())
                .setSessionTimeout(random.nextInt()).setSubscription(bytes()).setAssignment(bytes()));
        }
        return new GroupMetadataValue().setProtocolType(text()).setGeneration(random.nextInt()).setProtocol(maybe())
            .setLeader(maybe()).setCurrentStateTimestamp(random.nextLong()).setMembers(members);
    }

    static String hex(short version, ApiMessage message) {
        ByteBuffer buffer = ByteBuffer.wrap(MessageUtil.toVersionPrefixedBytes(version, message));
        return HexFormat.of().formatHex(buffer.array());
    }

    public static void main(String[] args) {
        random = new Random(Long.parseLong(args[0]));
        for (int number = 0; number < Integer.parseInt(args[1]); number++) {
            short version = (short) (number % 5);
            String group = text();
            boolean isOffset = number % 2 == 0;
            ApiMessage key = isOffset
                ? new OffsetCommitKey().setGroup(group).setTopic(text()).setPartition(random.nextInt())
                : new GroupMetadataKey().setGroup(group);
            ApiMessage value = isOffset ? offset(version) : group();
            Object json = isOffset ? OffsetCommitValueJsonConverter.write((OffsetCommitValue) value, version)
                : GroupMetadataValueJsonConverter.write((GroupMetadataValue) value, version);
            String name = Base64.getEncoder().encodeToString(group.getBytes(java.nio.charset.StandardCharsets.UTF_8));
            System.out.println(String.join("\t", isOffset ? "offset" : "group", "" + version, name,
                "" + Utils.abs(group.hashCode()) % 50, hex((short) (isOffset ? 1 : 2), key), hex(version, value),
                json.toString()));
        }
    }
}
