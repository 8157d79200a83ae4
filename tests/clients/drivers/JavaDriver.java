import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.FileDescriptor;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.AppInfoParser;

/** The Java client behind a pipe; protocol.py says how, README.md what the requests are. */
public final class JavaDriver {
    static final Duration WAIT = Duration.ofSeconds(60);
    static final long PATIENCE_MS = 90_000, QUIET_MS = 300;
    static final ObjectMapper JSON = new ObjectMapper();
    static final Map<String, String> STRATEGIES = Map.of(
        "range", RangeAssignor.class.getName(),
        "roundrobin", RoundRobinAssignor.class.getName(),
        "sticky", StickyAssignor.class.getName(),
        "cooperative-sticky", CooperativeStickyAssignor.class.getName());

    final String bootstrap;
    final Admin admin;
    Member member;

    JavaDriver(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.<String, Object>of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        JavaDriver driver = new JavaDriver(args[0]);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            Map<String, Object> answer = new HashMap<>();
            try {
                answer.put("ok", driver.answer(JSON.readTree(line)));
            } catch (Throwable thrown) {
                Throwable error = thrown;
                while (error.getCause() != null && !(error instanceof org.apache.kafka.common.errors.ApiException)) error = error.getCause();
                answer.put("error", error.getClass().getSimpleName());
                answer.put("message", String.valueOf(error.getMessage()));
            }
            answers.println(JSON.writeValueAsString(answer));
        }
        Runtime.getRuntime().halt(0);
    }

    Object answer(JsonNode asked) throws Exception {
        String topic = asked.path("topic").asText(), group = asked.path("group").asText(), name = asked.path("name").asText();
        switch (asked.get("do").asText()) {
            case "hello": return Map.of("client", "Java client", "version", AppInfoParser.getVersion());
            case "topics": return topics();
            case "create": {
                NewTopic made = new NewTopic(topic, asked.get("partitions").asInt(), (short) 1);
                made.configs(JSON.convertValue(asked.get("config"), JSON.getTypeFactory().constructMapType(Map.class, String.class, String.class)));
                admin.createTopics(List.of(made)).all().get();
                return null;
            }
            case "delete": admin.deleteTopics(List.of(topic)).all().get(); return null;
            case "grow": admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(asked.get("partitions").asInt()))).all().get(); return null;
            case "configs": return configs(topic);
            case "alter": {
                AlterConfigOp set = new AlterConfigOp(new ConfigEntry(name, asked.get("to").asText()), AlterConfigOp.OpType.SET);
                admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.TOPIC, topic), List.of(set))).all().get();
                return null;
            }
            case "delete_records": {
                TopicPartition place = new TopicPartition(topic, asked.get("partition").asInt());
                var deleted = admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(asked.get("before").asLong())));
                return deleted.lowWatermarks().get(place).get().lowWatermark();
            }
            case "cluster": {
                List<String> nodes = new ArrayList<>();
                DescribeClusterResult found = admin.describeCluster();
                found.nodes().get().forEach(node -> nodes.add(node.host() + ":" + node.port()));
                return Map.of("id", found.clusterId().get(), "nodes", nodes);
            }
            case "log_dirs": return logDirs();
            case "producers": {
                TopicPartition place = new TopicPartition(topic, asked.get("partition").asInt());
                return admin.describeProducers(List.of(place)).partitionResult(place).get().activeProducers().size();
            }
            case "transactions": {
                Map<String, String> found = new TreeMap<>();
                for (TransactionListing one : admin.listTransactions().all().get()) found.put(one.transactionalId(), one.state().toString());
                return found;
            }
            case "describe_transaction": {
                TransactionDescription found = admin.describeTransactions(List.of(name)).description(name).get();
                return Map.of("state", found.state().toString(), "partitions", found.topicPartitions().size());
            }
            case "produce": return produce(asked);
            case "consume": return consume(asked);
            case "offsets": return offsets(topic, asked);
            case "committed": return committed(group, topic, asked.get("partitions"));
            case "groups": {
                List<String> found = new ArrayList<>();
                admin.listGroups(ListGroupsOptions.forConsumerGroups()).all().get().forEach(one -> found.add(one.groupId()));
                return found;
            }
            case "describe_group": {
                ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get();
                return Map.of("state", found.groupState().toString(), "members", found.members().size(), "strategy", found.partitionAssignor());
            }
            case "delete_group": admin.deleteConsumerGroups(List.of(group)).all().get(); return null;
            case "delete_offset": {
                Set<TopicPartition> places = Set.of(new TopicPartition(topic, asked.get("partition").asInt()));
                admin.deleteConsumerGroupOffsets(group, places).all().get();
                return null;
            }
            case "set_offset": {
                TopicPartition place = new TopicPartition(topic, asked.get("partition").asInt());
                admin.alterConsumerGroupOffsets(group, Map.of(place, new OffsetAndMetadata(asked.get("to").asLong()))).all().get();
                return null;
            }
            case "join":
                member = new Member(group, topic, asked.get("strategy").asText(), asked.path("instance").asText());
                member.start();
                return null;
            case "state": return member.state();
            case "commit": member.ask(member::commit); return null;
            case "leave": member.ask(() -> member.ended = true); member.join(); return null;
            case "transact": return transact(name, topic, asked);
            case "move": return move(asked);
            case "fence": return fence(name, topic);
            case "hang": return hang(name, topic);
            default: throw new IllegalArgumentException(asked.toString());
        }
    }

    Map<String, Object> common() {
        return new HashMap<>(Map.of("bootstrap.servers", bootstrap));
    }

    Producer<byte[], byte[]> producer(Map<String, Object> settings) {
        Map<String, Object> all = common();
        all.putAll(settings);
        all.putIfAbsent("linger.ms", 5);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    Producer<byte[], byte[]> transactional(String name) {
        Producer<byte[], byte[]> made = producer(Map.of("transactional.id", name));
        made.initTransactions();
        return made;
    }

    Consumer<byte[], byte[]> consumer(Map<String, Object> settings) {
        Map<String, Object> all = common();
        all.put("enable.auto.commit", false);
        all.put("auto.offset.reset", "earliest");
        all.put("heartbeat.interval.ms", 500);
        all.putAll(settings);
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    Map<String, Integer> topics() throws Exception {
        Map<String, Integer> found = new TreeMap<>();
        Set<String> names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        admin.describeTopics(names).allTopicNames().get().forEach((name, told) -> found.put(name, told.partitions().size()));
        return found;
    }

    Map<String, String> configs(String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Map<String, String> found = new TreeMap<>();
        admin.describeConfigs(List.of(resource)).all().get().get(resource).entries().forEach(e -> found.put(e.name(), String.valueOf(e.value())));
        return found;
    }

    Map<String, Long> logDirs() throws Exception {
        Map<String, Long> sizes = new TreeMap<>();
        int node = admin.describeCluster().nodes().get().iterator().next().id();
        for (LogDirDescription dir : admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).values())
            dir.replicaInfos().forEach((place, told) -> sizes.put(place.toString(), told.size()));
        return sizes;
    }

    List<Long> produce(JsonNode asked) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "acks", asked.path("acks").asText("all"), "compression.type", asked.path("codec").asText("none"),
            "enable.idempotence", asked.path("idempotent").asBoolean()));
        if (asked.path("settings").isObject())
            asked.get("settings").fields().forEachRemaining(one -> settings.put(one.getKey(), one.getValue().asText()));
        try (Producer<byte[], byte[]> producer = producer(settings)) {
            return send(producer, asked.get("topic").asText(), asked.get("partitions"), asked.get("first").asInt(),
                asked.get("count").asInt(), asked.path("size").asInt(), asked.path("time").asLong());
        }
    }

    static List<Long> send(Producer<byte[], byte[]> producer, String topic, JsonNode partitions, int first, int count, int size, long time)
            throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int at = 0; at < count; at++) {
            String value = "r" + (first + at);
            byte[] data = (value + ".".repeat(Math.max(0, size - value.length()))).getBytes(StandardCharsets.UTF_8);
            int partition = partitions == null ? 0 : partitions.get(at % partitions.size()).asInt();
            Long stamp = time == 0 ? null : Long.valueOf(time + at);
            sent.add(producer.send(new ProducerRecord<>(topic, partition, stamp, ("k" + (first + at)).getBytes(StandardCharsets.UTF_8), data)));
        }
        producer.flush();
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> one : sent)
            if (one.get().hasOffset()) offsets.add(one.get().offset());
        Collections.sort(offsets);
        return offsets;
    }

    static void add(Map<String, List<List<Object>>> found, ConsumerRecord<byte[], byte[]> record) {
        String value = record.value() == null ? null : new String(record.value(), StandardCharsets.UTF_8).replaceAll("\\.+$", "");
        found.computeIfAbsent(String.valueOf(record.partition()), any -> Collections.synchronizedList(new ArrayList<>()))
            .add(Arrays.asList(record.offset(), value));
    }

    Object consume(JsonNode asked) {
        String isolation = "read_" + asked.path("isolation").asText("uncommitted");
        Map<String, List<List<Object>>> found = new TreeMap<>();
        try (Consumer<byte[], byte[]> consumer = consumer(Map.of("isolation.level", isolation, "auto.offset.reset", "none"))) {
            List<TopicPartition> places = new ArrayList<>();
            asked.get("partitions").forEach(one -> places.add(new TopicPartition(asked.get("topic").asText(), one.asInt())));
            consumer.assign(places);
            JsonNode start = asked.get("start");
            if (start == null || start.isTextual()) consumer.seekToBeginning(places);
            else places.forEach(place -> consumer.seek(place, start.asLong()));
            int count = asked.get("count").asInt(), seen = 0;
            long until = System.currentTimeMillis() + (count == 0 ? 3000 : PATIENCE_MS);
            while (System.currentTimeMillis() < until) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    add(found, record);
                    if (++seen == count) until = System.currentTimeMillis() + QUIET_MS;
                }
            }
        }
        return found;
    }

    List<Long> offsets(String topic, JsonNode asked) throws Exception {
        TopicPartition place = new TopicPartition(topic, asked.get("partition").asInt());
        List<Long> found = new ArrayList<>();
        for (JsonNode wanted : asked.get("at")) {
            OffsetSpec spec = wanted.isNumber() ? OffsetSpec.forTimestamp(wanted.asLong())
                : Map.of("earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(), "max", OffsetSpec.maxTimestamp()).get(wanted.asText());
            found.add(admin.listOffsets(Map.of(place, spec)).partitionResult(place).get().offset());
        }
        return found;
    }

    List<Long> committed(String group, String topic, JsonNode partitions) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> found = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        List<Long> offsets = new ArrayList<>();
        for (JsonNode one : partitions) {
            OffsetAndMetadata told = found.get(new TopicPartition(topic, one.asInt()));
            offsets.add(told == null ? null : Long.valueOf(told.offset()));
        }
        return offsets;
    }

    Object transact(String name, String topic, JsonNode asked) throws Exception {
        try (Producer<byte[], byte[]> producer = transactional(name)) {
            for (JsonNode step : asked.get("steps")) {
                producer.beginTransaction();
                send(producer, topic, asked.get("partitions"), step.get(0).asInt(), step.get(1).asInt(), 0, 0);
                if (step.get(2).asText().equals("commit")) producer.commitTransaction();
                else producer.abortTransaction();
            }
        }
        return null;
    }

    Object move(JsonNode asked) throws Exception {
        TopicPartition place = new TopicPartition(asked.get("source").asText(), 0);
        Map<String, Object> settings = Map.of("group.id", asked.get("group").asText(), "isolation.level", "read_committed");
        try (Consumer<byte[], byte[]> consumer = consumer(settings); Producer<byte[], byte[]> producer = transactional(asked.get("name").asText())) {
            consumer.assign(List.of(place));
            OffsetAndMetadata begun = consumer.committed(Set.of(place), WAIT).get(place);
            consumer.seek(place, begun == null ? 0 : begun.offset());
            producer.beginTransaction();
            int count = asked.get("count").asInt(), moved = 0;
            long position = 0, until = System.currentTimeMillis() + WAIT.toMillis();
            while (moved < count && System.currentTimeMillis() < until)
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    if (moved == count) break;
                    producer.send(new ProducerRecord<>(asked.get("to").asText(), 0, null, record.value()));
                    position = record.offset() + 1;
                    moved++;
                }
            if (moved < count) throw new IllegalStateException("nothing to move");
            producer.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(position)), consumer.groupMetadata());
            if (asked.get("outcome").asText().equals("commit")) producer.commitTransaction();
            else producer.abortTransaction();
        }
        return null;
    }

    Object fence(String name, String topic) throws Exception {
        Producer<byte[], byte[]> first = transactional(name), second = null;
        try {
            first.beginTransaction();
            send(first, topic, null, 0, 1, 0, 0);
            second = transactional(name);
            send(first, topic, null, 1, 1, 0, 0);
            first.commitTransaction();
        } finally {
            first.close(Duration.ZERO);
            if (second != null) second.close();
        }
        return null;
    }

    /** Leaves a transaction open, as a client that was killed does. */
    Object hang(String name, String topic) throws Exception {
        Producer<byte[], byte[]> lost = producer(Map.of("transactional.id", name, "transaction.timeout.ms", 10_000));
        lost.initTransactions();
        lost.beginTransaction();
        return send(lost, topic, null, 0, 1, 0, 0);
    }

    final class Member extends Thread implements ConsumerRebalanceListener {
        final Consumer<byte[], byte[]> consumer;
        final String topic;
        final Map<String, List<List<Object>>> records = new ConcurrentHashMap<>();
        final BlockingQueue<FutureTask<Void>> asked = new LinkedBlockingQueue<>();
        volatile List<String> assigned = List.of();
        volatile String error = "";
        volatile boolean ended;

        Member(String group, String topic, String strategy, String instance) {
            this.topic = topic;
            Map<String, Object> settings = new HashMap<>(Map.of(
                "group.id", group, "partition.assignment.strategy", STRATEGIES.get(strategy), "metadata.max.age.ms", 5000));
            if (!instance.isEmpty()) settings.put("group.instance.id", instance);
            this.consumer = consumer(settings);
            setDaemon(true);
        }

        @Override public void onPartitionsRevoked(Collection<TopicPartition> gone) { commit(); }
        @Override public void onPartitionsAssigned(Collection<TopicPartition> come) { }

        void commit() { consumer.commitSync(WAIT); }

        @Override public void run() {
            try {
                consumer.subscribe(List.of(topic), this);
                while (!ended) {
                    consumer.poll(Duration.ofMillis(100)).forEach(record -> add(records, record));
                    assigned = consumer.assignment().stream().map(place -> String.valueOf(place.partition())).sorted().toList();
                    for (FutureTask<Void> call = asked.poll(); call != null; call = asked.poll()) call.run();
                }
                consumer.close();
            } catch (Throwable thrown) {
                error = String.valueOf(thrown);
            }
        }

        void ask(Runnable call) throws Exception {
            FutureTask<Void> task = new FutureTask<>(call, null);
            asked.add(task);
            while (isAlive() && !task.isDone()) {
                try {
                    task.get(100, TimeUnit.MILLISECONDS);
                } catch (TimeoutException later) {
                    continue;
                }
            }
            task.get(1, TimeUnit.SECONDS);
        }

        Map<String, Object> state() {
            Map<String, Object> copied = new TreeMap<>();
            records.forEach((partition, found) -> { synchronized (found) { copied.put(partition, new ArrayList<>(found)); } });
            return Map.of("assigned", assigned, "records", copied, "error", error);
        }
    }
}
