import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;

/** Records as JSON rows in the form of the fixtures' files: bytes as base64, null as null. */
final class Rows {
    static final ObjectMapper JSON = new ObjectMapper();

    private Rows() {
    }

    static ObjectNode of(TopicPartition partition, RecordBatch batch, Record record) {
        ObjectNode row = row(partition.topic(), partition.partition(), record.offset(), record.timestamp())
            .put("timestamp_type", batch.timestampType().name)
            .put("leader_epoch", batch.partitionLeaderEpoch())
            .put("key", encoded(record.key()))
            .put("value", encoded(record.value()));
        ArrayNode headers = row.putArray("headers");
        for (Header header : record.headers()) {
            add(headers, header);
        }
        if (batch.isControlBatch()) {
            row.put("control", ControlRecordType.parse(record.key()).name());
        }
        return row;
    }

    static ObjectNode of(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode row = row(record.topic(), record.partition(), record.offset(), record.timestamp())
            .put("timestamp_type", record.timestampType().name)
            .put("leader_epoch", record.leaderEpoch().orElse(-1))
            .put("key", encoded(record.key()))
            .put("value", encoded(record.value()));
        ArrayNode headers = row.putArray("headers");
        record.headers().forEach(header -> add(headers, header));
        return row;
    }

    private static ObjectNode row(String topic, int partition, long offset, long timestamp) {
        return JSON.createObjectNode().put("topic", topic).put("partition", partition)
            .put("offset", offset).put("timestamp", timestamp);
    }

    private static void add(ArrayNode headers, Header header) {
        headers.addArray().add(header.key()).add(encoded(header.value()));
    }

    private static String encoded(ByteBuffer bytes) {
        if (bytes == null) {
            return null;
        }
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return encoded(copy);
    }

    private static String encoded(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    static TopicPartition partition(File directory) {
        String name = directory.getName();
        int cut = name.lastIndexOf('-');
        return new TopicPartition(name.substring(0, cut), Integer.parseInt(name.substring(cut + 1)));
    }

    /** Files BASE_OFFSET + suffix of a partition directory, by rising offset. */
    static List<File> files(File directory, String suffix) {
        File[] found = directory.listFiles((parent, name) -> name.matches("\\d{20}" + suffix.replace(".", "\\.")));
        Arrays.sort(found);
        return Arrays.asList(found);
    }

    static long baseOffset(File file) {
        return Long.parseLong(file.getName().substring(0, 20));
    }
}
