import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.io.Writer;
import java.nio.file.Files;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own clients against the broker at `bootstrap`. */
final class Clients {
    private static final int PATIENCE_SECONDS = 60;

    private Clients() {
    }

    private static Admin admin(JsonNode ask) {
        return Admin.create(Map.of("bootstrap.servers", ask.get("bootstrap").asText()));
    }

    private static TopicPartition partition(JsonNode ask) {
        return new TopicPartition(ask.get("topic").asText(), 0);
    }

    /** Topics of one partition, with their configs; answers name to topic id. */
    static Object createTopics(JsonNode ask) throws Exception {
        ObjectNode ids = Rows.JSON.createObjectNode();
        try (Admin admin = admin(ask)) {
            List<NewTopic> topics = new java.util.ArrayList<>();
            ask.get("topics").fields().forEachRemaining(entry -> {
                Map<String, String> config = new HashMap<>();
                entry.getValue().fields().forEachRemaining(e -> config.put(e.getKey(), e.getValue().asText()));
                topics.add(new NewTopic(entry.getKey(), Optional.of(1), Optional.of((short) 1)).configs(config));
            });
            var created = admin.createTopics(topics);
            for (NewTopic topic : topics) {
                ids.put(topic.name(), created.topicId(topic.name()).get().toString());
            }
        }
        return ids;
    }

    /** Waits until every topic has a leader. */
    static Object awaitLeaders(JsonNode ask) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        try (Admin admin = admin(ask)) {
            for (JsonNode topic : ask.get("topics")) {
                TopicPartition partition = new TopicPartition(topic.asText(), 0);
                while (true) {
                    try {
                        admin.listOffsets(Map.of(partition, OffsetSpec.latest())).partitionResult(partition).get();
                        break;
                    } catch (ExecutionException error) {
                        if (System.nanoTime() > deadline) {
                            throw error;
                        }
                    }
                }
            }
        }
        return "led";
    }

    /** Every record of a topic's partition 0 from the earliest on; rows to `out`. */
    static Object consume(JsonNode ask) throws IOException {
        TopicPartition partition = partition(ask);
        Map<String, Object> config = Map.of("bootstrap.servers", ask.get("bootstrap").asText(),
            "isolation.level", ask.get("isolation").asText(), "auto.offset.reset", "earliest",
            "enable.auto.commit", "false", "check.crcs", "true");
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        int count = 0;
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
             Writer out = Files.newBufferedWriter(new File(ask.get("out").asText()).toPath())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            long start = consumer.position(partition);
            while (consumer.position(partition) < end) {
                if (System.nanoTime() > deadline) {
                    throw new IOException(partition + " stands at " + consumer.position(partition) + " of " + end);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100)).records(partition)) {
                    out.write(Rows.of(record) + "\n");
                    count++;
                }
            }
            return Rows.JSON.createObjectNode().put("start", start).put("end", end).put("records", count);
        }
    }

    /** The broker's answer to ListOffsets: -1 latest, -2 earliest, -3 largest timestamp, else a timestamp. */
    static Object offsetFor(JsonNode ask) throws Exception {
        long timestamp = ask.get("timestamp").asLong();
        OffsetSpec spec = timestamp == -1 ? OffsetSpec.latest() : timestamp == -2 ? OffsetSpec.earliest()
            : timestamp == -3 ? OffsetSpec.maxTimestamp() : OffsetSpec.forTimestamp(timestamp);
        try (Admin admin = admin(ask)) {
            var answer = admin.listOffsets(Map.of(partition(ask), spec),
                new ListOffsetsOptions(IsolationLevel.READ_UNCOMMITTED)).partitionResult(partition(ask)).get();
            return Rows.JSON.createObjectNode().put("offset", answer.offset()).put("timestamp", answer.timestamp())
                .put("leader_epoch", answer.leaderEpoch().orElse(-1));
        }
    }

    /** Sends `count` records with a fresh idempotent producer; answers the first offset. */
    static Object produce(JsonNode ask) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", ask.get("bootstrap").asText(),
            "enable.idempotence", "true", "acks", "all", "compression.type", ask.path("codec").asText("none"));
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<java.util.concurrent.Future<org.apache.kafka.clients.producer.RecordMetadata>> sent = new java.util.ArrayList<>();
            for (int i = 0; i < ask.get("count").asInt(); i++) {
                sent.add(producer.send(new ProducerRecord<>(ask.get("topic").asText(), 0, null, ("from Kafka " + i).getBytes())));
            }
            producer.flush();
            for (var record : sent) {
                record.get();
            }
            return sent.get(0).get().offset();
        }
    }
}
