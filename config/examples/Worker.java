import java.io.RandomAccessFile;
import java.net.ServerSocket;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel.MapMode;
import java.nio.file.*;

class Worker {
    public static void main(String[] arguments) throws Exception {
        // Here it loads and computes, and touches nothing that replicas share.
        var file = new RandomAccessFile("/proc/self/fd/" + System.getenv("TENURE_TERM_FD"), "r");
        var page = file.getChannel().map(MapMode.READ_ONLY, 0, 4096).order(ByteOrder.LITTLE_ENDIAN);
        var warm = new ServerSocket(Integer.parseInt(System.getenv("PORT")));
        while (page.getInt(16) != 1) Thread.sleep(1); // stopped somewhere in this line, until it leads
        long token = page.getLong(40);
        var output = Path.of(System.getenv("OUTPUT"));
        for (;; Thread.sleep(1)) {
            var line = token + " " + System.currentTimeMillis() + "\n";
            Files.writeString(output, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        }
    }
}
