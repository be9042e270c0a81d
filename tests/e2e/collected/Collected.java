// SPDX-License-Identifier: BSD-2-Clause
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/* Makes garbage outside of Java's heap, and keeps some of it when asked to: Collected leak|none STEPS */
public class Collected {
	public static void main(String[] arguments) throws Exception {
		List<Object> kept = new ArrayList<>();
		int steps = Integer.parseInt(arguments[1]);

		for (int step = 0; step < steps; step++) {
			List<Object> garbage = new ArrayList<>();
			for (int i = 0; i < 500; i++) {
				garbage.add("request " + step + "/" + i);
				garbage.add(ByteBuffer.allocateDirect(2048));
			}
			if (arguments[0].equals("leak"))
				kept.addAll(garbage.subList(0, 100));
			if (step % 3 == 2)
				System.gc();
			Thread.sleep(8);
		}
	}
}
