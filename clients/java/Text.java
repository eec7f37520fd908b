package dlock;

import dlock.Lease.Misuse;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/**
 * Text: the arguments that a program gives, and the names on their way to a server and back.
 *
 * <p>SPDX-License-Identifier: PostgreSQL
 */
final class Text {
    private Text() {
    }

    // --------------------------------------------------------------------------------------- names

    /** A name or an owner that is the same for every server, or Misuse. */
    static String checked(String what, String text) {
        // half of a surrogate pair has no UTF-8, and getBytes() would make it a question mark
        if (text == null || !StandardCharsets.UTF_8.newEncoder().canEncode(text))
            throw new Misuse(what + " must be text that has UTF-8", null);
        int bytes = text.getBytes(StandardCharsets.UTF_8).length;
        if (bytes == 0 || bytes > 255 || text.indexOf('\0') >= 0)
            throw new Misuse(what + " must have 1 to 255 bytes of UTF-8, and no NUL", null);
        return text;
    }

    static String[] checkedNames(String... names) {
        if (names == null || names.length == 0 || names.length > 100)
            throw new Misuse("a lease must have 1 to 100 names", null);
        for (String name : names)
            checked("a name", name);
        if (new HashSet<>(Arrays.asList(names)).size() < names.length)
            throw new Misuse("a name is there twice", null);
        return names.clone();
    }

    // --------------------------------------------------------------------------------------- times

    /** The units of core/duration.c, and their seconds; a unit may be given once. */
    private static final Map<String, Double> UNITS = Map.of(
        "us usec usecs microsecond microseconds", 1e-6,
        "ms msec msecs millisecond milliseconds", 1e-3,
        "s sec secs second seconds", 1.0,
        "m min mins minute minutes", 60.0,
        "h hr hrs hour hours", 3600.0,
        "d day days", 86400.0,
        "w week weeks", 7 * 86400.0,
        "mon mons month months", 30 * 86400.0,
        "y yr yrs year years", 360 * 86400.0);

    private static final Map<String, Double> SECONDS_OF = UNITS.entrySet().stream()
        .flatMap(unit -> Arrays.stream(unit.getKey().split(" ")).map(word -> Map.entry(word, unit.getValue())))
        .collect(Collectors.toUnmodifiableMap(Map.Entry::getKey, Map.Entry::getValue));

    private static final Pattern NUMBER = Pattern.compile("[+-]?(?:[0-9]+\\.?[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?");
    private static final Pattern NUMBER_AND_UNIT = Pattern.compile("\\s*([+-]?(?:[0-9]+\\.?[0-9]*|\\.[0-9]+))\\s*([A-Za-z]+)\\s*");

    /** Seconds that can be meant, or Misuse. */
    static double seconds(String what, double seconds) {
        if (!(Math.abs(seconds) <= 1e9))                    // it may be no number
            throw new Misuse(what + " must be finite, and 10^9 s at most", null);
        return seconds;
    }

    static double seconds(String what, Duration duration) {
        if (duration == null)
            throw new Misuse(what + " must not be null", null);
        return seconds(what, duration.getSeconds() + duration.getNano() / 1e9);
    }

    /** A number of seconds, or numbers with units, added up, as SQL has them. */
    static double seconds(String what, CharSequence text) {
        if (text == null)
            throw new Misuse(what + " must not be null", null);
        String trimmed = text.toString().strip();
        if (NUMBER.matcher(trimmed).matches())
            return seconds(what, Double.parseDouble(trimmed));
        double sum = 0;
        Set<Double> given = new HashSet<>();
        Matcher next = NUMBER_AND_UNIT.matcher(trimmed);
        int at = 0;
        for (; next.lookingAt(); next.region(at, trimmed.length())) {
            Double unit = SECONDS_OF.get(next.group(2).toLowerCase(Locale.ROOT));
            if (unit == null || !given.add(unit))
                break;
            sum += Double.parseDouble(next.group(1)) * unit;
            at = next.end();
        }
        if (at < trimmed.length() || given.isEmpty())
            throw new Misuse(what + " is no time: \"" + text + "\"", null);
        return seconds(what, sum);
    }

    // ----------------------------------------------------------------------------- to and from servers

    // These characters are the same bytes in all encodings, and need no quoting.
    private static final Pattern PLAIN = Pattern.compile("[A-Za-z0-9 ,._:/-]*");

    static boolean isPlain(String text) {
        return PLAIN.matcher(text).matches();
    }

    /** The digits of its UTF-8. */
    static String hex(String text) {
        StringBuilder digits = new StringBuilder();
        for (byte b : text.getBytes(StandardCharsets.UTF_8))
            digits.append(Character.forDigit(b >> 4 & 15, 16)).append(Character.forDigit(b & 15, 16));
        return digits.toString();
    }

    static String unhex(String digits) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(digits.length() / 2);
        for (int i = 0; i < digits.length(); i += 2)
            bytes.write(Integer.parseInt(digits.substring(i, i + 2), 16));
        return bytes.toString(StandardCharsets.UTF_8);
    }

    /** An array of strings as JSON. */
    static String json(String... strings) {
        StringBuilder text = new StringBuilder("[");
        for (String string : strings) {
            text.append(text.length() > 1 ? ", \"" : "\"");
            for (char c : string.toCharArray()) {
                if (c == '"' || c == '\\')
                    text.append('\\').append(c);
                else if (c < ' ')
                    text.append(String.format("\\u%04x", (int) c));
                else
                    text.append(c);
            }
            text.append('"');
        }
        return text.append(']').toString();
    }

    /** An array of strings as PostgreSQL reads it. */
    static String array(String... strings) {
        StringBuilder text = new StringBuilder("{");
        for (String string : strings) {
            text.append(text.length() > 1 ? ",\"" : "\"");
            for (char c : string.toCharArray()) {
                if (c == '"' || c == '\\')
                    text.append('\\');
                text.append(c);
            }
            text.append('"');
        }
        return text.append('}').toString();
    }

    private static final String ESCAPED = "bfnrt";
    private static final String ESCAPES = "\b\f\n\r\t";

    /** The strings of an array in JSON. */
    static List<String> strings(String json) {
        List<String> strings = new ArrayList<>();
        StringBuilder string = null;
        for (int i = 0; i < json.length(); i++) {
            char c = json.charAt(i);
            if (string == null) {
                if (c == '"')
                    string = new StringBuilder();
            } else if (c == '"') {
                strings.add(string.toString());
                string = null;
            } else if (c != '\\') {
                string.append(c);
            } else if ((c = json.charAt(++i)) == 'u') {
                string.append((char) Integer.parseInt(json.substring(i + 1, i + 5), 16));
                i += 4;
            } else {
                int escape = ESCAPED.indexOf(c);
                string.append(escape < 0 ? c : ESCAPES.charAt(escape));
            }
        }
        return strings;
    }
}
