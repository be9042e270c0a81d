# SPDX-License-Identifier: BSD-2-Clause
# A shop that keeps the Deflater of each tenth visitor. bash begins it in an empty folder; $PID is the process that grows.
cat > Shop.java <<'END'
import java.util.ArrayList;
import java.util.zip.Deflater;

public class Shop {
    static final ArrayList<Deflater> baskets = new ArrayList<>();

    static void compress(byte[] page, boolean leaves) {
        Deflater deflater = new Deflater();
        deflater.setInput(page);
        deflater.deflate(new byte[page.length], 0, page.length, Deflater.SYNC_FLUSH);
        if (leaves)
            baskets.add(deflater);
        else
            deflater.end();
    }

    public static void main(String[] words) throws Exception {
        for (int visitor = 0; ; visitor++) {
            compress(new byte[5000], visitor % 10 == 0);
            if (visitor == 3000)
                System.out.println("ready");
            if (visitor > 3000)
                Thread.sleep(5);
        }
    }
}
END
javac Shop.java
java -Xmx16m -XX:+PreserveFramePointer Shop > shop.log &
PID=$!
until grep -q ready shop.log; do kill -0 $PID; sleep 0.1; done
