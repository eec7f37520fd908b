package dlock;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import javax.sql.DataSource;

/** The connections that the tests' leases use: to the server that the environment names. */
public final class Connections {
    private Connections() {
    }

    private static String url(String driver, String port) {
        return "jdbc:" + driver + "://" + System.getenv("DLOCK_HOST") + ":" + port + "/" + System.getenv("DLOCK_DATABASE")
            + "?user=" + System.getenv("DLOCK_USER") + "&socketFactory=dlock.Lease$Sockets"
            // poolers in transaction mode know no prepared statements
            + (!driver.equals("postgresql") ? ""
                : "&sslmode=disable" + (System.getenv("DLOCK_POOLED") != null ? "&prepareThreshold=0" : ""));
    }

    public static Connection plain(String driver, String port) throws SQLException {
        return DriverManager.getConnection(url(driver, port));
    }

    /** With more options of the driver. */
    public static Connection with(String options, String driver, String port) throws SQLException {
        return DriverManager.getConnection(url(driver, port) + options);
    }

    /** As odd as the driver lets a program make it; wrapped, as tracers wrap connections. */
    public static Connection odd(String driver, String port) throws SQLException {
        if (driver.equals("postgresql"))
            return wrapped(with("&allowEncodingChanges=true&options=-c%20client_encoding=latin1%20-c%20standard_conforming_strings=off"
                + "&preferQueryMode=simple&stringtype=unspecified&autosave=always", driver, port));
        Connection connection = with("&tinyInt1isBit=false&sessionVariables=sql_mode='NO_BACKSLASH_ESCAPES,ANSI_QUOTES'", driver, port);
        return wrapped(after("SET character_set_client = latin1, character_set_connection = utf8mb4, character_set_results = latin1", connection));
    }

    /** In an encoding that takes the end of some UTF-8 characters and a backslash for one character. */
    public static Connection chinese(String driver, String port) throws SQLException {
        return after(driver.equals("postgresql") ? "SET client_encoding = 'GBK'" : "SET NAMES gbk", with("&allowEncodingChanges=true", driver, port));
    }

    private static Connection after(String command, Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute(command);
        }
        return connection;
    }

    /** A connection that is no class of the driver's, and does not say whose it is. */
    public static Connection wrapped(Connection connection) {
        return (Connection) Proxy.newProxyInstance(Connections.class.getClassLoader(), new Class<?>[] {Connection.class}, (proxy, method, arguments) -> {
            if (method.getName().equals("unwrap"))
                throw new SQLException("this is a wrapper");
            if (method.getName().equals("isWrapperFor"))
                return false;
            try {
                return method.invoke(connection, arguments);
            } catch (InvocationTargetException error) {
                throw error.getCause();
            }
        });
    }

    /** For a pool. */
    static DataSource source(String driver, String port) {
        return (DataSource) Proxy.newProxyInstance(Connections.class.getClassLoader(), new Class<?>[] {DataSource.class}, (proxy, method, arguments) -> {
            switch (method.getName()) {
                case "getConnection":
                    return plain(driver, port);
                case "toString":
                    return "a source of connections";
                case "hashCode":
                case "getLoginTimeout":
                    return 1;
                default:
                    return null;
            }
        });
    }

    /** One to a server of another kind, which does nothing. */
    static Connection of(String product) {
        DatabaseMetaData data = (DatabaseMetaData) Proxy.newProxyInstance(Connections.class.getClassLoader(), new Class<?>[] {DatabaseMetaData.class},
            (proxy, method, arguments) -> method.getName().equals("getDatabaseProductName") ? product : null);
        return (Connection) Proxy.newProxyInstance(Connections.class.getClassLoader(), new Class<?>[] {Connection.class},
            (proxy, method, arguments) -> method.getName().equals("getMetaData") ? data : null);
    }
}
