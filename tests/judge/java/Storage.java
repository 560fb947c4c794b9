import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.io.Writer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.OffsetPosition;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.TimeIndex;
import org.apache.kafka.storage.internals.log.TimestampOffset;
import org.apache.kafka.storage.internals.log.TransactionIndex;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** What Kafka's storage classes say of one partition directory. Give copies: opening changes files. */
final class Storage {
    private Storage() {
    }

    /** Every record of every segment, each batch checked first; rows to `out`, one a line. */
    static Object read(JsonNode ask) throws Exception {
        File directory = new File(ask.get("dir").asText());
        TopicPartition partition = Rows.partition(directory);
        int batches = 0;
        int count = 0;
        try (Writer out = Files.newBufferedWriter(new File(ask.get("out").asText()).toPath())) {
            for (File log : Rows.files(directory, ".log")) {
                try (FileRecords records = FileRecords.open(log, false)) {
                    long walked = 0;
                    for (FileChannelRecordBatch batch : records.batches()) {
                        batch.ensureValid();
                        for (Record record : batch) {
                            record.ensureValid();
                            out.write(Rows.of(partition, batch, record) + "\n");
                            count++;
                        }
                        batches++;
                        walked += batch.sizeInBytes();
                    }
                    if (walked != log.length()) {
                        throw new IOException(log + ": batches end at " + walked + " of " + log.length() + " bytes");
                    }
                }
            }
        }
        return Rows.JSON.createObjectNode().put("batches", batches).put("records", count);
    }

    /** Complaints about .index and .timeindex files: their own sanity check, and each entry against the log. */
    static Object checkIndexes(JsonNode ask) throws Exception {
        File directory = new File(ask.get("dir").asText());
        List<String> complaints = new ArrayList<>();
        int entries = 0;
        for (File log : Rows.files(directory, ".log")) {
            String name = log.getName().substring(0, 20);
            Map<Long, Integer> places = new HashMap<>();
            TreeMap<Long, Long> largest = new TreeMap<>();
            long highest = -1;
            try (FileRecords records = FileRecords.open(log, false)) {
                for (FileChannelRecordBatch batch : records.batches()) {
                    places.put(batch.lastOffset(), batch.position());
                    highest = Math.max(highest, batch.maxTimestamp());
                    largest.put(batch.lastOffset(), highest);
                }
            }
            File offsets = new File(directory, name + ".index");
            OffsetIndex index = new OffsetIndex(offsets, Rows.baseOffset(log), -1, false);
            index.sanityCheck();
            for (int i = 0; i < index.entries(); i++, entries++) {
                OffsetPosition entry = index.entry(i);
                if (!Integer.valueOf(entry.position()).equals(places.get(entry.offset()))) {
                    complaints.add(offsets.getName() + " says " + entry + ", the log " + places.get(entry.offset()));
                }
            }
            index.closeHandler();
            File times = new File(directory, name + ".timeindex");
            TimeIndex timeIndex = new TimeIndex(times, Rows.baseOffset(log), -1, false);
            timeIndex.sanityCheck();
            for (int i = 0; i < timeIndex.entries(); i++, entries++) {
                TimestampOffset entry = timeIndex.entry(i);
                Map.Entry<Long, Long> known = largest.ceilingEntry(entry.offset());
                if (known == null || known.getValue() < entry.timestamp()) {
                    complaints.add(times.getName() + " says " + entry + ", the log " + known);
                }
            }
            timeIndex.closeHandler();
        }
        ObjectNode answer = Rows.JSON.createObjectNode().put("entries", entries);
        complaints.forEach(answer.putArray("complaints")::add);
        return answer;
    }

    /** Producer snapshots, aborted transactions and leader epochs, as Kafka's readers give them. */
    static Object sideFiles(JsonNode ask) throws Exception {
        File directory = new File(ask.get("dir").asText());
        ObjectNode answer = Rows.JSON.createObjectNode();
        for (File file : Rows.files(directory, ".snapshot")) {
            ArrayNode producers = answer.putArray(file.getName());
            ProducerStateManager.readSnapshot(file).stream()
                .sorted(Comparator.comparingLong(entry -> entry.producerId()))
                .forEach(entry -> producers.addObject().put("producer_id", entry.producerId())
                    .put("producer_epoch", entry.producerEpoch()).put("first_sequence", entry.firstSeq())
                    .put("last_sequence", entry.lastSeq()).put("last_offset", entry.lastDataOffset())
                    .put("offset_delta", entry.lastOffsetDelta()).put("timestamp", entry.lastTimestamp())
                    .put("coordinator_epoch", entry.coordinatorEpoch())
                    .put("current_txn_first_offset", entry.currentTxnFirstOffset().orElse(-1)));
        }
        for (File file : Rows.files(directory, ".txnindex")) {
            ArrayNode aborted = answer.putArray(file.getName());
            TransactionIndex index = new TransactionIndex(Rows.baseOffset(file), file);
            index.sanityCheck();
            for (AbortedTxn entry : index.allAbortedTxns()) {
                aborted.addObject().put("version", entry.version()).put("producer_id", entry.producerId())
                    .put("first_offset", entry.firstOffset()).put("last_offset", entry.lastOffset())
                    .put("last_stable_offset", entry.lastStableOffset());
            }
        }
        ArrayNode epochs = answer.putArray("leader-epoch-checkpoint");
        LogDirFailureChannel failures = new LogDirFailureChannel(1);
        LeaderEpochFileCache cache = new LeaderEpochFileCache(Rows.partition(directory),
            new LeaderEpochCheckpointFile(LeaderEpochCheckpointFile.newFile(directory), failures), new KafkaScheduler(1));
        cache.epochEntries().forEach(entry -> epochs.addArray().add(entry.epoch()).add(entry.startOffset()));
        return answer;
    }

    /** UnifiedLog opened on the directory: its state, and to `out` every record that it reads, aborted ones too. */
    static Object open(JsonNode ask) throws Exception {
        File directory = new File(ask.get("dir").asText());
        TopicPartition partition = Rows.partition(directory);
        Map<String, String> options = new HashMap<>();
        ask.path("config").fields().forEachRemaining(e -> options.put(e.getKey(), e.getValue().asText()));
        UnifiedLog log = UnifiedLog.create(directory, new LogConfig(options), ask.get("log_start_offset").asLong(),
            ask.get("recovery_point").asLong(), new KafkaScheduler(1), new BrokerTopicStats(), Time.SYSTEM, 900000,
            new ProducerStateManagerConfig(86400000, false), 600000, new LogDirFailureChannel(10),
            ask.get("clean").asBoolean(), Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        try (Writer out = Files.newBufferedWriter(new File(ask.get("out").asText()).toPath())) {
            long at = log.logStartOffset();
            while (at < log.logEndOffset()) {
                FetchDataInfo fetched = log.read(at, 1 << 20, FetchIsolation.LOG_END, true);
                long next = at;
                for (RecordBatch batch : fetched.records.batches()) {
                    batch.ensureValid();
                    for (Record record : batch) {
                        if (record.offset() >= at) {
                            out.write(Rows.of(partition, batch, record) + "\n");
                        }
                    }
                    next = batch.nextOffset();
                }
                if (next == at) {
                    break;
                }
                at = next;
            }
        }
        ObjectNode state = state(log);
        log.closeHandlers();
        return state;
    }

    private static ObjectNode state(UnifiedLog log) throws IOException {
        ObjectNode state = Rows.JSON.createObjectNode().put("log_start_offset", log.logStartOffset())
            .put("log_end_offset", log.logEndOffset()).put("recovery_point", log.recoveryPoint())
            .put("last_stable_offset", log.lastStableOffset());
        ArrayNode epochs = state.putArray("epochs");
        log.leaderEpochCache().epochEntries().forEach(e -> epochs.addArray().add(e.epoch()).add(e.startOffset()));
        ArrayNode producers = state.putArray("producers");
        log.activeProducers().stream().sorted(Comparator.comparingLong(entry -> entry.producerId()))
            .forEach(entry -> producers.addObject().put("producer_id", entry.producerId())
                .put("producer_epoch", entry.producerEpoch()).put("last_sequence", entry.lastSequence())
                .put("last_timestamp", entry.lastTimestamp()).put("coordinator_epoch", entry.coordinatorEpoch())
                .put("current_txn_start_offset", entry.currentTxnStartOffset()));
        ArrayNode segments = state.putArray("segments");
        for (LogSegment segment : log.logSegments()) {
            segments.addObject().put("base_offset", segment.baseOffset()).put("size", segment.size())
                .put("next_offset", segment.readNextOffset());
        }
        return state;
    }
}
