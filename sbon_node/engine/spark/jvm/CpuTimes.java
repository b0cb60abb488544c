package py4j.reflection; // where a class can be defined at run time

import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;

/** Processor time of streaming queries: of their tasks, and of the thread that plans their batches. */
public class CpuTimes extends SparkListener {
    private final Map queries = new HashMap(); // of long[1], nanoseconds of tasks, by the query's id
    private final Map stages = new HashMap(); // of the same long[1], by the number of a stage that runs

    public synchronized void watch(String query) {
        this.queries.put(query, new long[1]);
    }

    public synchronized void forget(String query) {
        this.queries.remove(query);
    }

    /** Nanoseconds so far; tasks count shortly after their end. */
    public synchronized long spent(String query, Thread planner) {
        long[] tasks = (long[]) this.queries.get(query);
        long planned = ManagementFactory.getThreadMXBean().getThreadCpuTime(planner.getId());
        return (tasks == null ? 0L : tasks[0]) + Math.max(0L, planned);
    }

    public synchronized void onStageSubmitted(SparkListenerStageSubmitted event) {
        Properties properties = event.properties();
        String query = properties == null ? null : properties.getProperty("sql.streaming.queryId");
        Object tasks = query == null ? null : this.queries.get(query);
        if (tasks != null) {
            this.stages.put(Integer.valueOf(event.stageInfo().stageId()), tasks);
        }
    }

    public synchronized void onTaskEnd(SparkListenerTaskEnd event) {
        long[] tasks = (long[]) this.stages.get(Integer.valueOf(event.stageId()));
        if (tasks != null && event.taskMetrics() != null) {
            tasks[0] += event.taskMetrics().executorCpuTime() + event.taskMetrics().executorDeserializeCpuTime();
        }
    }

    public synchronized void onStageCompleted(SparkListenerStageCompleted event) {
        this.stages.remove(Integer.valueOf(event.stageInfo().stageId()));
    }
}
