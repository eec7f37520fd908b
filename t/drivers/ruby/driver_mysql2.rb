# mysql2.
# speaks: mariadb mysql
# needs: ruby ruby-mysql2

require_relative 'cases'
require 'json'
require 'mysql2'

class Prepared
  def connect
    Mysql2::Client.new(host: HOST, port: PORT, database: DATABASE, username: USER)
  end

  def close(connection) = connection.close

  def value(connection, sql, *arguments)
    connection.prepare("SELECT #{sql}").execute(*arguments, as: :array).first[0]
  end

  def transaction(connection)
    connection.query('BEGIN')
    result = yield
    connection.query('COMMIT')
    result
  rescue StandardError
    connection.query('ROLLBACK')
    raise
  end

  def guard(connection, *arguments)
    connection.prepare('CALL dlock.guard(?, ?, ?)').execute(*arguments)
  end

  def execute(connection, sql) = connection.query(sql)
  def set(connection, sql) = connection.query(sql)

  def kind_of(error)
    return error.inspect unless error.is_a?(Mysql2::Error)

    case error.error_number
    when 1644 then 'lost'
    when 3572 then 'blocked'
    when 1138, 1234, 1292, 3037 then 'misuse'
    when 3058 then 'deadlock'
    when 1927, 2006, 2013, 4031, nil then 'gone'
    else "#{error.error_number} #{error.inspect}"
    end
  end

  def durations = {}
  def token(value) = value
  def yes = 1
  def no = 0
end

driver = Prepared.new
connection = driver_cases(driver)

# text
text = ->(sql, *arguments) { driver.value(connection, "CONVERT(#{sql} USING utf8mb4)", *arguments) }
driver.value(connection, 'dlock_acquire(?, ?, ?)', 'text', 'Grün', 30)
same(driver.value(connection, 'dlock_owner(?)', 'text').encoding, SERVER == 'mariadb' ? Encoding::BINARY : Encoding::UTF_8,
     "an answer's encoding: UTF-8, but binary from MariaDB")
same(driver.value(connection, 'dlock_owner(?)', 'text') == 'Grün', SERVER == 'mysql', 'which is not equal to text')
same(text.('dlock_owner(?)', 'text'), 'Grün', 'converted: UTF-8 from both')

# lists
names = ['plain', 'a "quoted", {one} \\ Grün']
tokens = JSON.parse(text.('dlock_acquire_all(?, ?, ?)', names.to_json, 'me', 30))
same(tokens.map(&:class), [Integer, Integer], 'names go in as JSON, tokens come out')
claimed = JSON.parse(text.('dlock_acquire_any(?, ?, ?, ?)', %w[plain free].to_json, 'me', 30, 2))
same(claimed.map { |taken| taken['name'] }, ['free'], 'names and tokens come out: what was free')
same(JSON.parse(text.('dlock_release_many(?, ?, ?)', names.to_json, 'me', tokens.to_json)), names, 'names and tokens go in')

# a statement without arguments
query = ->(sql) { connection.query("SELECT #{sql}", as: :array).first[0] }
token = query.("dlock_acquire('query', '#{connection.escape("it's me")}', 30)")
same(token.class, Integer, 'query: a token is a whole number too')
same(driver.value(connection, 'dlock_renew(?, ?, ?, ?)', 'query', "it's me", 30, token), 1, 'which goes back; the owner is that')

# a Rational is sent as NULL
error = error_of { driver.value(connection, 'dlock_acquire(?, ?, ?)', 'x', 'me', 61r / 2) }
same(error.error_number, 1138, 'a Rational cannot be bound: the server gets NULL')
done
