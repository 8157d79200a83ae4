-- Which partitions have only one good copy of some of their data, and on which broker?
SELECT cluster, topic, partition, lone_broker AS good_copy_on, replicas, expected_replicas,
       array_join(bad_brokers, ', ') AS bad_on, disagree_first_offset AS first_offset,
       disagree_last_offset AS last_offset, size_bytes
FROM verdicts JOIN last_audit USING (audit_id)
WHERE lone_broker IS NOT NULL
ORDER BY size_bytes DESC, cluster, topic, partition
