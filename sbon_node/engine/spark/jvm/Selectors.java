package py4j.reflection; // where a class can be defined at run time

import java.io.IOException;
import java.net.ProtocolFamily;
import java.nio.channels.Channel;
import java.nio.channels.DatagramChannel;
import java.nio.channels.Pipe;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.channels.spi.AbstractSelector;
import java.nio.channels.spi.SelectorProvider;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

/**
 * The JVM's own selectors; those that Spark forgets to close are closed here.
 *
 * Spark 4 opens one, with a listening socket, for every Python process that it starts for a reader, and waits there for its
 * call. That done it lets go of it, and three descriptors stay open for ever.
 */
public class Selectors extends SelectorProvider {
    private static final String FORGETFUL = "createSimpleWorker";

    private final SelectorProvider own = sun.nio.ch.DefaultSelectorProvider.get();
    private final List forgotten = new ArrayList(); // of Object[] {AbstractSelector, Thread}

    public AbstractSelector openSelector() throws IOException {
        AbstractSelector opened = this.own.openSelector();
        Thread opener = Thread.currentThread();
        if (isIn(opener)) {
            this.closeForgotten(opener);
            synchronized (this.forgotten) {
                this.forgotten.add(new Object[] {opened, opener});
            }
        }
        return opened;
    }

    /** Those whose thread has gone on; the one that opens another has, too. */
    private void closeForgotten(Thread opener) throws IOException {
        synchronized (this.forgotten) {
            for (Iterator each = this.forgotten.iterator(); each.hasNext();) {
                Object[] one = (Object[]) each.next();
                Thread thread = (Thread) one[1];
                if (thread == opener || !isIn(thread)) {
                    ((AbstractSelector) one[0]).close();
                    each.remove();
                }
            }
        }
    }

    private static boolean isIn(Thread thread) {
        StackTraceElement[] frames = thread.getStackTrace();
        for (int i = 0; i < frames.length; i++) {
            if (frames[i].getMethodName().equals(FORGETFUL)) {
                return true;
            }
        }
        return false;
    }

    public DatagramChannel openDatagramChannel() throws IOException {
        return this.own.openDatagramChannel();
    }

    public DatagramChannel openDatagramChannel(ProtocolFamily family) throws IOException {
        return this.own.openDatagramChannel(family);
    }

    public Pipe openPipe() throws IOException {
        return this.own.openPipe();
    }

    public ServerSocketChannel openServerSocketChannel() throws IOException {
        return this.own.openServerSocketChannel();
    }

    public ServerSocketChannel openServerSocketChannel(ProtocolFamily family) throws IOException {
        return this.own.openServerSocketChannel(family);
    }

    public SocketChannel openSocketChannel() throws IOException {
        return this.own.openSocketChannel();
    }

    public SocketChannel openSocketChannel(ProtocolFamily family) throws IOException {
        return this.own.openSocketChannel(family);
    }

    public Channel inheritedChannel() throws IOException {
        return this.own.inheritedChannel();
    }
}
