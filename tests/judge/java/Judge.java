import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/** Kafka as the judge: a question a line on standard input, an answer a line on standard output, both JSON. */
public final class Judge {
    private Judge() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        Exit.setExitProcedure((code, message) -> {
            throw new IllegalStateException("the tool left with " + code + ": " + message);
        });
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            ObjectNode answer = Rows.JSON.createObjectNode();
            try {
                answer.set("ok", Rows.JSON.valueToTree(answer(Rows.JSON.readTree(line))));
            } catch (Throwable error) {
                answer.put("error", trace(error));
            }
            answers.println(answer);
        }
        Runtime.getRuntime().halt(0);
    }

    private static Object answer(JsonNode ask) throws Exception {
        switch (ask.get("op").asText()) {
            case "read": return Storage.read(ask);
            case "check_indexes": return Storage.checkIndexes(ask);
            case "side_files": return Storage.sideFiles(ask);
            case "open": return Storage.open(ask);
            case "dump": return dump(ask);
            case "create_topics": return Clients.createTopics(ask);
            case "await_leaders": return Clients.awaitLeaders(ask);
            case "consume": return Clients.consume(ask);
            case "offset_for": return Clients.offsetFor(ask);
            case "produce": return Clients.produce(ask);
            default: throw new IllegalArgumentException("no question named " + ask.get("op"));
        }
    }

    /** DumpLogSegments with the given arguments; answers what it printed. */
    private static Object dump(JsonNode ask) throws Exception {
        List<String> arguments = new ArrayList<>();
        ask.get("args").forEach(argument -> arguments.add(argument.asText()));
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream before = System.out;
        PrintStream sink = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(sink);
        try {
            scala.Console.withOut(sink, () -> {
                kafka.tools.DumpLogSegments.main(arguments.toArray(new String[0]));
                return null;
            });
        } finally {
            System.setOut(before);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }

    private static String trace(Throwable error) {
        java.io.StringWriter text = new java.io.StringWriter();
        error.printStackTrace(new java.io.PrintWriter(text));
        return text.toString();
    }
}
