// SPDX-License-Identifier: BSD-2-Clause
import java.lang.management.BufferPoolMXBean;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/* Makes garbage outside of Java's heap, and keeps some of it when asked to: Collected leak|none STEPS */
public class Collected {
	static final int BUFFERS = 500; // a step
	static final int KEPT = 50; // of them, by a leak
	static final int STEP_MS = 20;

	/* A thread of Java's frees what was collected; on a busy machine it would fall behind. */
	static void collect(int kept) throws InterruptedException {
		System.gc();
		for (BufferPoolMXBean pool : ManagementFactory.getPlatformMXBeans(BufferPoolMXBean.class))
			for (int waits = 0; pool.getCount() > kept + BUFFERS && waits < 1000; waits++)
				Thread.sleep(1);
	}

	public static void main(String[] arguments) throws Exception {
		List<Object> kept = new ArrayList<>();
		boolean leaks = arguments[0].equals("leak");
		int steps = Integer.parseInt(arguments[1]);
		long begin = System.currentTimeMillis();

		for (int step = 0; step < steps; step++) {
			List<Object> garbage = new ArrayList<>();
			for (int i = 0; i < BUFFERS; i++) {
				garbage.add("request " + step + "/" + i);
				garbage.add(ByteBuffer.allocateDirect(2048));
			}
			if (leaks)
				kept.addAll(garbage.subList(0, 2 * KEPT));
			if (step % 3 == 2)
				collect(leaks ? (step + 1) * KEPT : 0);
			// By the clock: a machine that is busy for a while changes no slope.
			long wait = begin + (long) step * STEP_MS - System.currentTimeMillis();
			if (wait > 0)
				Thread.sleep(wait);
		}
	}
}
